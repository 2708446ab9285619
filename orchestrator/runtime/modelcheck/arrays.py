"""Describe an array: dtype, shape, digest, number of non-finite values, and its values if it is small."""

from __future__ import annotations

import base64
import hashlib
from typing import Any, Dict, List, Tuple

MAX_VALUES = 4 << 20
"""Maximum bytes of one array, and of all listed arrays of one file, whose values are included."""


def facts(array: Any, *, values: bool = False) -> Dict[str, Any]:
    """Return dtype, shape and sha256 of the little-endian bits; with `values` also these bits, in base64.

    For floats also `not_finite`: the number of infinite and NaN values. The values of an array with more than
    MAX_VALUES bytes are None.
    """
    import numpy as np

    if array.dtype.name == "bfloat16":  # as float32, without loss, because struct cannot unpack bfloat16
        return {**facts(array.astype("float32"), values=values), "dtype": "bfloat16"}
    if array.dtype.hasobject:
        raw = "\0".join(str(item) for item in array.reshape(-1)).encode()
        name = "string"
    else:
        little = array.astype(array.dtype.newbyteorder("<")) if array.dtype.byteorder == ">" else array
        raw, name = np.ascontiguousarray(little).tobytes(), str(array.dtype.name)
    found: Dict[str, Any] = {
        "dtype": name,
        "shape": list(array.shape),
        "sha256": hashlib.sha256(raw).hexdigest(),
    }
    if array.dtype.kind in "fc":
        found["not_finite"] = int(array.size - np.count_nonzero(np.isfinite(array)))
    if values:
        found["values"] = base64.b64encode(raw).decode() if len(raw) <= MAX_VALUES else None
    return found


def listed(named: List[Tuple[str, Any]]) -> List[Dict[str, Any]]:
    """Return the facts of named arrays, sorted by name, with values as long as their total size is at most
    MAX_VALUES."""
    import numpy as np

    spent, result = 0, []
    for name, value in sorted(named, key=lambda pair: pair[0]):
        array = np.asarray(value)
        spent += array.nbytes
        result.append({"name": name, **facts(array, values=spent <= MAX_VALUES)})
    return result
