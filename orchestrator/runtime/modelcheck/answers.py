"""Validate the answer for one file, which may come from an untrusted process or machine."""

from __future__ import annotations

import re
from typing import Any, Dict, Optional

from .explain import Cause

MAX_TEXT = 2_000
_TEXTS = ("path", "kind", "saved_with", "note", "reason", "way_out")
_VERSION = re.compile(r"[a-z_]{1,40}_version\Z")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_CAUSES = frozenset(cause.value for cause in Cause)
_ISOLATION = ("user", "files", "network", "processes")


def sound(value: Any) -> Optional[Dict[str, Any]]:
    """Return `value` reduced to the fields of an answer, each of its type; None if it is not an answer."""
    if not isinstance(value, dict) or not isinstance(value.get("loaded"), bool):
        return None
    found: Dict[str, Any] = {"v": 1, "loaded": value["loaded"]}
    for name in value:
        if name in _TEXTS or (isinstance(name, str) and _VERSION.match(name)):
            found[name] = _text(value[name])
    if isinstance(value.get("sha256"), str):
        found["sha256"] = value["sha256"][:64]
    if value.get("not_checked") in _CAUSES:
        found["not_checked"] = value["not_checked"]
    for name in ("inputs", "outputs", "tensors"):
        if isinstance(value.get(name), list):
            found[name] = [_array(each) for each in value[name] if _is_array(each)]
    if isinstance(value.get("isolation"), dict):
        found["isolation"] = {name: _text(value["isolation"].get(name)) for name in _ISOLATION}
    for name in ("equal", "equivalent"):
        if name in value:
            found[name] = value[name] if isinstance(value[name], bool) else None
    for name in ("max_abs", "relative"):
        if name in value:
            found[name] = value[name] if type(value[name]) in (int, float) else None
    if found["loaded"] and "tensors" not in found and not ("inputs" in found and "outputs" in found):
        return None
    return found


def _text(value: Any) -> Optional[str]:
    """Return the first MAX_TEXT characters with control characters, which a terminal would obey, replaced by
    spaces; None if it is no text."""
    return _CONTROL.sub(" ", value[:MAX_TEXT]) if isinstance(value, str) else None


def _is_array(value: Any) -> bool:
    """Whether it has name, dtype, shape and digest, and its values, if any, are text or null."""
    return (
        isinstance(value, dict)
        and all(isinstance(value.get(name), str) for name in ("name", "dtype", "sha256"))
        and isinstance(value.get("shape"), list)
        and all(type(size) is int for size in value["shape"])
        and isinstance(value.get("values", ""), (str, type(None)))
    )


def _array(value: Dict[str, Any]) -> Dict[str, Any]:
    kept = {name: value[name] for name in ("name", "dtype", "sha256", "shape")}
    if type(value.get("not_finite")) is int:
        kept["not_finite"] = value["not_finite"]
    if "values" in value:
        kept["values"] = value["values"]
    return kept
