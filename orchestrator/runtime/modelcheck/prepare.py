"""Read objects that prepare a model's input: pickled scalers and encoders, vocabularies, statistics as JSON.

A pickle is a program, which is never run: see pickles.py.
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
    """Return `tensors` of what the file holds, and `inputs` and `outputs` of a fixed batch if it transforms
    one.

    `trusted` are modules of the user whose classes may be instantiated. Raises Refusal, or what unpickling
    raises.
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
    """Return the digest of a text: JSON regardless of its white space; a vocabulary by lines, regardless of
    line endings."""
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
    """Return {"saved_with": …} if the pickle names another version of scikit-learn than the one here, else
    {}."""
    here = getattr(sys.modules.get("sklearn"), "__version__", None)
    other = [version for version in made_by if version != here]
    return {"saved_with": f"scikit-learn {other[0]}"} if other else {}


# ---------------------------------------------------------------- fitted values


def _parts(value: Any, name: str, depth: int) -> Iterator[Tuple[str, Any]]:
    """Yield (name, array) for every number, text and array in an object; names are paths of attributes and
    indices."""
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
    """Return inputs and outputs of a fixed batch; {} if the object transforms none."""
    import numpy as np

    batch = _batch(found)
    method = next((m for m in ("transform", "predict") if hasattr(found, m)), None)
    if batch is None or method is None:
        return {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the batch has no column names
        try:
            made = getattr(found, method)(batch)
        except Exception:  # unsuitable input; fitted values are compared anyway
            return {}
    dense = made.toarray() if hasattr(made, "toarray") else made
    given, output = np.asarray(batch), np.asarray(dense)
    return {
        "inputs": [{"name": "", **facts(given)}],
        "outputs": [{"name": method, **facts(output, values=True)}],
    }


def _batch(found: Any) -> Any:
    """Return rows that the fitted object accepts: its own words, classes or categories, or numbers in its
    width."""
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
