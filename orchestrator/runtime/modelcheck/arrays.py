"""Facts of an array: dtype, shape, digest, what is not finite, and its values where it is small."""

from __future__ import annotations

import base64
import hashlib
from typing import Any, Dict, List, Tuple

MAX_VALUES = 4 << 20
"""Bytes of one array, and of all arrays of one file, that are given as values; of more the digest alone."""


def facts(array: Any, *, values: bool = False) -> Dict[str, Any]:
    """dtype, shape and sha256 of the little-endian bits; with `values` also those, in base64.

    Of floats also `not_finite`: how many are infinite or NaN.
    """
    import numpy as np

    if array.dtype.name == "bfloat16":  # as float32, without loss: nothing else can unpack it
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
    """Facts of named arrays, by name; values as long as all of them together stay small."""
    import numpy as np

    spent, result = 0, []
    for name, value in sorted(named, key=lambda pair: pair[0]):
        array = np.asarray(value)
        spent += array.nbytes
        result.append({"name": name, **facts(array, values=spent <= MAX_VALUES)})
    return result
