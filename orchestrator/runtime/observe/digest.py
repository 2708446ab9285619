"""Describe an array by facts that two machines can compare. numpy is that of the observed process."""

from __future__ import annotations

import hashlib
import math
from typing import Any, Dict, List, Sequence, Tuple

from .settings import MAX_ROWS, SAMPLE

_WRAP = 1 << 256


def raw_bytes(array: Any) -> Any:
    """Return the array's content, in C order, in a form that hashlib and files accept.

    Strings (object arrays) become length-prefixed bytes, so that ("ab", "c") differs from ("a", "bc").
    """
    import numpy as np

    if array.dtype.hasobject:
        items = [item if isinstance(item, bytes) else str(item).encode() for item in array.reshape(-1)]
        return b"".join(len(item).to_bytes(8, "little") + item for item in items)
    flat = np.ascontiguousarray(array).reshape(-1)
    return memoryview(flat.view(np.uint8)) if flat.size else b""


def describe(array: Any) -> Dict[str, Any]:
    """Return dtype, shape, elements, sha256 of the content, and the L2 norm (None for strings)."""
    return {
        "dtype": "string" if array.dtype.hasobject else str(array.dtype.name),
        "shape": [int(size) for size in array.shape],
        "elements": int(array.size),
        "sha256": hashlib.sha256(raw_bytes(array)).hexdigest(),
        "l2": norm(array),
    }


def norm(array: Any) -> Any:
    """Return the L2 norm in float64; None for strings, and if it is not finite."""
    import numpy as np

    if array.dtype.hasobject or array.dtype.kind in "SU":
        return None
    flat = np.abs(array.reshape(-1)) if array.dtype.kind == "c" else array.reshape(-1)
    wide = flat.astype(np.float64)
    value = math.sqrt(float(np.dot(wide, wide)))
    return value if math.isfinite(value) else None


def sample(array: Any) -> Tuple[int, Any]:
    """Return every stride-th element of the flattened array, at most SAMPLE of them, and the stride."""
    stride = max(1, -(-int(array.size) // SAMPLE))
    return stride, array.reshape(-1)[::stride].copy()


def storable(array: Any) -> Any:
    """Return the array's bits in a dtype that every .npy reader knows (bfloat16 and float8 as integers)."""
    import numpy as np

    if array.dtype.hasobject:
        raise TypeError("strings are kept as a digest only")
    if array.dtype.kind != "V" and array.dtype.isbuiltin == 1:
        return array
    return array.view({1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[array.dtype.itemsize])


def records(arrays: Sequence[Any]) -> Dict[str, Any]:
    """Return digests of the records of one batch (rows of all arrays together): in order, and as a multiset.

    `rows` lists the first 16 hex digits of each record's digest, for the first MAX_ROWS records. Empty if the
    arrays have no common leading dimension.
    """
    if not arrays or any(array.ndim == 0 for array in arrays):
        return {}
    count = int(arrays[0].shape[0])
    if count == 0 or any(int(array.shape[0]) != count for array in arrays):
        return {}
    digests = [_row(arrays, index) for index in range(count)]
    total = sum(int.from_bytes(digest, "big") for digest in digests) % _WRAP
    return {
        "count": count,
        "ordered": hashlib.sha256(b"".join(digests)).hexdigest(),
        "multiset": f"{total:064x}",
        "rows": [digest.hex()[:16] for digest in digests[:MAX_ROWS]],
    }


def _row(arrays: Sequence[Any], index: int) -> bytes:
    hasher = hashlib.sha256()
    for array in arrays:
        hasher.update(raw_bytes(array[index : index + 1]))
    return hasher.digest()


def flatten(structure: Any) -> List[Tuple[str, Any]]:
    """Return (path, leaf) of nested dicts, lists and tuples, dict keys sorted; a single leaf has path ""."""
    if isinstance(structure, dict):
        children = [(str(key), structure[key]) for key in sorted(structure, key=str)]
    elif isinstance(structure, (list, tuple)):
        children = [(str(index), value) for index, value in enumerate(structure)]
    else:
        return [("", structure)]
    return [
        (f"{name}/{path}" if path else name, leaf)
        for name, value in children
        for path, leaf in flatten(value)
    ]
