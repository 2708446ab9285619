"""What prepares a model's input: pickled scalers and encoders, vocabularies, statistics as JSON.

A pickle is a program, which is not run: see pickles.py.
"""

from __future__ import annotations

import hashlib
import json
import sys
import warnings
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

from . import pickles
from .arrays import facts, listed
from .explain import Refusal
from .files import ModelFile

_DEPTH = 8


def read(file: ModelFile, trusted: Tuple[str, ...] = ()) -> Dict[str, Any]:
    """`tensors` of what the file holds, `inputs` and `outputs` of a fixed batch where it transforms one.

    `trusted` are modules of one's own whose classes may be made. Raises Refusal, or what unpickling raises.
    """
    if file.kind == "text":
        return {"tensors": _text(file.path)}
    found, made_by = pickles.load(file.path, trusted)
    result: Dict[str, Any] = {"tensors": listed(list(_parts(found, "", _DEPTH)))}
    batch = _transformed(found)
    if batch:
        result.update(batch)
    return {**result, **_saved_with(made_by), "note": None}


# ---------------------------------------------------------------- texts


def _text(path: Path) -> List[Dict[str, Any]]:
    """JSON by what it says, not by its spaces; a vocabulary by its lines, whatever ends them."""
    raw = path.read_bytes()
    if path.suffix.lower() == ".json":
        try:
            value = json.loads(raw)
        except ValueError as error:
            raise Refusal(f"{path.name} is no JSON: {error}", "Copy it again, or write it again.") from None
        text = json.dumps(value, sort_keys=True, separators=(",", ":"))
        return [
            {"name": "", "dtype": "json", "shape": [], "sha256": hashlib.sha256(text.encode()).hexdigest()}
        ]
    lines = raw.replace(b"\r\n", b"\n").split(b"\n")
    digest = hashlib.sha256(b"\n".join(lines)).hexdigest()
    return [{"name": "", "dtype": "lines", "shape": [len(lines) - (lines[-1] == b"")], "sha256": digest}]


# ---------------------------------------------------------------- pickles


def _saved_with(made_by: List[str]) -> Dict[str, Any]:
    """Another version of scikit-learn that made it, as the pickle says."""
    here = getattr(sys.modules.get("sklearn"), "__version__", None)
    other = [version for version in made_by if version != here]
    return {"saved_with": f"scikit-learn {other[0]}"} if other else {}


# ---------------------------------------------------------------- what was learned


def _parts(value: Any, name: str, depth: int) -> Iterator[Tuple[str, Any]]:
    """(name, array) of every number, text and array below an object, by attribute and place."""
    import numpy as np

    if depth <= 0 or value is None or callable(value):
        return
    if isinstance(value, (np.ndarray, np.generic, bool, int, float, complex, str, bytes)):
        yield name, np.asarray(value)
    elif isinstance(value, dict):
        for key in sorted(value, key=str):
            yield from _parts(value[key], f"{name}.{key}".lstrip("."), depth - 1)
    elif isinstance(value, (list, tuple)):
        yield from _sequence(value, name, depth)
    elif isinstance(value, (set, frozenset)):
        yield from _sequence(sorted(value, key=str), name, depth)
    elif hasattr(value, "tocoo"):
        dense = value.tocoo()
        for part in ("row", "col", "data"):
            yield f"{name}.{part}".lstrip("."), getattr(dense, part)
    elif hasattr(value, "to_numpy"):
        yield name, value.to_numpy()
    else:
        state = vars(value) if hasattr(value, "__dict__") else {}
        yield f"{name}.class".lstrip("."), np.asarray(type(value).__name__)
        yield from _parts(state, name, depth - 1)


def _sequence(value: Any, name: str, depth: int) -> Iterator[Tuple[str, Any]]:
    import numpy as np

    if all(isinstance(each, (bool, int, float, str)) for each in value) and value:
        yield name, np.asarray(list(value), dtype=object if len({type(e) for e in value}) > 1 else None)
        return
    for index, each in enumerate(value):
        yield from _parts(each, f"{name}.{index}".lstrip("."), depth - 1)


# ---------------------------------------------------------------- a fixed batch through it


def _transformed(found: Any) -> Dict[str, Any]:
    """Inputs and outputs of a fixed batch, {} where the object transforms none."""
    import numpy as np

    batch = _batch(found)
    method = next((m for m in ("transform", "predict") if hasattr(found, m)), None)
    if batch is None or method is None:
        return {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # names of columns that the batch has not
        try:
            made = getattr(found, method)(batch)
        except Exception:  # whatever a class asks of its input: what it learned is compared all the same
            return {}
    dense = made.toarray() if hasattr(made, "toarray") else made
    given, output = np.asarray(batch), np.asarray(dense)
    return {
        "inputs": [{"name": "", **facts(given)}],
        "outputs": [{"name": method, **facts(output, values=True)}],
    }


def _batch(found: Any) -> Any:
    """Rows that the fitted object knows: numbers by its width, its own classes, words or categories."""
    import numpy as np

    from .predict import ROWS, fixed

    words = getattr(found, "vocabulary_", None)
    if isinstance(words, dict):
        return [str(word) for word in sorted(words)][:ROWS]
    classes = getattr(found, "classes_", None)
    if classes is not None and not hasattr(found, "n_features_in_"):
        return np.asarray(classes)[:ROWS]
    categories = getattr(found, "categories_", None)
    if categories is not None:
        rows = [[column[row % len(column)] for column in categories] for row in range(ROWS)]
        return np.asarray(rows, dtype=object)
    width = getattr(found, "n_features_in_", None)
    return fixed((None, int(width)), "float64", 0) if width else None
