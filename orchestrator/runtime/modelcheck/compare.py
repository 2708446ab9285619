"""Compare two results of check-model: whether predictions are the same, or how much they differ."""

from __future__ import annotations

import base64
import math
import struct
import sys
from array import array as doubles
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

ROUNDING = 1e-5
"""Maximum relative L2 difference of predictions that are called equivalent."""

_SAME = {"equal": True, "equivalent": True, "max_abs": 0.0, "relative": 0.0}

_FORMATS = {
    "float64": "d",
    "float32": "f",
    "float16": "e",
    "bfloat16": "f",
    "int64": "q",
    "int32": "i",
    "uint8": "B",
    "bool": "?",
}


def against(earlier: Dict[str, Any], here: Dict[str, Any]) -> Dict[str, Any]:
    """Return equal (bit for bit; None if unknown), equivalent, max_abs, relative, and a reason as text; what
    does not apply is absent.

    `earlier` is the result of the machine that the model came from, `here` the one of this computer.
    """
    if not here.get("loaded"):
        return {"equal": None, "equivalent": None}
    if not earlier.get("loaded"):
        why = earlier.get("reason") or "it says nothing"
        reason = f"it loads here, but not where it came from: {why}"
        return {"equal": None, "equivalent": None, "reason": reason}
    if "tensors" in earlier or "tensors" in here:
        differ = _tensors(earlier.get("tensors") or [], here.get("tensors") or [])
        if differ or "outputs" not in here or "outputs" not in earlier:
            return differ or dict(_SAME)
    if _digests(earlier.get("inputs", [])) != _digests(here.get("inputs", [])):
        return _unequal(
            "it loads, but its inputs are not the same as where it came from (name, shape or dtype)"
        )
    if _digests(earlier["outputs"]) == _digests(here["outputs"]):
        return dict(_SAME)
    if [o["shape"] for o in earlier["outputs"]] != [o["shape"] for o in here["outputs"]]:
        return _unequal("it loads, but its outputs have other shapes than where it came from")
    return _measured(earlier, here)


def _tensors(there: Sequence[Dict[str, Any]], here: Sequence[Dict[str, Any]]) -> Dict[str, Any]:
    """Return an unequal result that names the first differing tensor and the number of them; {} if all are
    equal."""
    mine, theirs = {t["name"]: t for t in there}, {t["name"]: t for t in here}
    alone = sorted(set(mine) ^ set(theirs))
    if alone:
        side = "there" if alone[0] in mine else "here"
        return _unequal(f"it loads, but {_called(alone[0])} is only {side} (of {len(alone)} such)")
    changed = [name for name in mine if _digests([mine[name]]) != _digests([theirs[name]])]
    if not changed:
        return {}
    first, other = mine[changed[0]], theirs[changed[0]]
    size = _size(first, other)
    reason = (
        f"it loads, but {len(changed)} of {len(mine)} tensors differ from where it came from, the first is "
        f"{_called(changed[0])} ({size})"
    )
    return _unequal(reason)


def _called(name: str) -> str:
    return name or "its content"


def _size(one: Dict[str, Any], two: Dict[str, Any]) -> str:
    if (one["dtype"], one["shape"]) != (two["dtype"], two["shape"]):
        return f"{one['dtype']} {one['shape']} there, {two['dtype']} {two['shape']} here"
    distance = _distance([one], [two])
    if distance is None:
        return f"{one['dtype']} {one['shape']}"
    return f"by at most {distance[0]:.3g}, {distance[1]:.2g} relative"


def _measured(earlier: Dict[str, Any], here: Dict[str, Any]) -> Dict[str, Any]:
    distance = _distance(earlier["outputs"], here["outputs"])
    does = "transforms" if method(here) == "transform" else "predicts"
    if distance is None:
        return _unequal(f"it loads, but {does} differently than where it came from")
    largest, relative = distance
    size = f"by at most {largest:.3g} ({relative:.2g} relative)"
    if relative <= ROUNDING:
        reason = f"it loads, and {does} the same up to rounding, as another processor may: {size}"
    else:
        reason = (
            f"it loads, but {does} differently than where it came from: {size}{_suspicion(earlier, here)}"
        )
    found = {"equal": False, "equivalent": relative <= ROUNDING, "reason": reason}
    return {**found, "max_abs": largest, "relative": relative}


def method(result: Mapping[str, Any]) -> Optional[str]:
    """Return what was done with the fixed batch: "predict", or "transform" for an object that prepares input;
    None if nothing."""
    outputs = result.get("outputs")
    if not outputs:
        return None
    prepares = result.get("kind") == "pickle" and outputs[0]["name"] == "transform"
    return "transform" if prepares else "predict"


def _suspicion(earlier: Dict[str, Any], here: Dict[str, Any]) -> str:
    if earlier.get("sha256") != here.get("sha256"):
        return "; the two files are not the same bytes"
    names = ("keras_version", "tensorflow_version", "numpy_version", "sklearn_version")
    other = [
        f"{n[:-8]} {earlier.get(n)} there and {here.get(n)} here"
        for n in names
        if earlier.get(n) != here.get(n)
    ]
    return f"; versions differ: {', '.join(other)}" if other else ""


def _unequal(reason: str) -> Dict[str, Any]:
    return {"equal": False, "equivalent": False, "max_abs": None, "relative": None, "reason": reason}


def _digests(arrays: Sequence[Dict[str, Any]]) -> List[Tuple[Any, ...]]:
    return [(a["dtype"], tuple(a["shape"]), a["sha256"]) for a in arrays]


def _distance(
    mine: Sequence[Dict[str, Any]], theirs: Sequence[Dict[str, Any]]
) -> Optional[Tuple[float, float]]:
    """Return the largest absolute and the relative L2 difference over all outputs; None if values are missing
    or not finite."""
    pairs = [(_values(a), _values(b)) for a, b in zip(mine, theirs)]  # noqa: B905
    if any(a is None or b is None or len(a) != len(b) for a, b in pairs):
        return None
    flat = [(a or (), b or ()) for a, b in pairs]

    def numbers() -> Iterator[Tuple[float, float]]:
        return (pair for a, b in flat for pair in zip(a, b))  # noqa: B905

    if not all(math.isfinite(x) and math.isfinite(y) for x, y in numbers()):
        return None
    scale = max((max(abs(x), abs(y)) for x, y in numbers()), default=0.0)
    if not scale:
        return 0.0, 0.0
    differences = [x / scale - y / scale for x, y in numbers()]  # unscaled squares could overflow
    square = math.fsum(each * each for each in differences)
    norm = max(math.fsum((pair[side] / scale) ** 2 for pair in numbers()) for side in (0, 1))
    return min(max(map(abs, differences)) * scale, sys.float_info.max), math.sqrt(square / norm)


def _values(array: Dict[str, Any]) -> Optional[Sequence[float]]:
    code, packed = _FORMATS.get(array["dtype"]), array.get("values")
    if code is None or packed is None:
        return None
    try:
        raw = base64.b64decode(packed)
        return doubles("d", struct.unpack(f"<{len(raw) // struct.calcsize(code)}{code}", raw))
    except (ValueError, struct.error):  # invalid values from an untrusted machine
        return None
