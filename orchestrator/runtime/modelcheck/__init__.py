"""`check-model PATH... [--expect FILE]`: do these models load here, and what do they predict?

Runs in the environment that should load them. Prints one JSON object: path, sha256, kind, loaded, inputs,
outputs (with values, base64 of little-endian bits), tensors (of weights, and of what prepares the input),
note, reason, way_out, versions; with --expect (a file that holds an earlier result, from elsewhere) also
equal, equivalent, max_abs and relative. Of several paths the objects are in a list `results`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional

from .compare import against
from .explain import Refusal, explain
from .files import ModelFile, identify


def main(argv: List[str]) -> int:
    """Print the result; 0 also where the model does not load, for that is a result. 2 for a wrong command."""
    parser = argparse.ArgumentParser(prog="check-model")
    parser.add_argument("paths", type=Path, nargs="+", metavar="PATH")
    parser.add_argument("--expect", type=Path, help="an earlier result, to compare predictions with")
    parser.add_argument("--unsafe", action="store_true", help="let the file's own code run (Lambda, pickles)")
    parser.add_argument("--import", dest="modules", action="append", default=[], metavar="MODULE")
    parser.add_argument("--folder", type=Path, help="where those modules lie, and those that models name")
    options = parser.parse_args(argv[1:] if argv[:1] == ["check-model"] else argv)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    with contextlib.redirect_stdout(sys.stderr):  # frameworks talk; standard output is for the result
        results = [
            check(path, options.modules, options.folder, unsafe=options.unsafe) for path in options.paths
        ]
    if options.expect:
        earlier = _earlier(options.expect)
        for place, result in enumerate(results):
            result.update(against(_of(earlier, place), result))
    print(json.dumps(results[0] if len(results) == 1 else {"v": 1, "results": results}, sort_keys=True))
    return 0


def check(
    path: Path, modules: List[str], folder: Optional[Path] = None, *, unsafe: bool = False
) -> Dict[str, Any]:
    """Load the file and predict a fixed batch. Never raises: what goes wrong is the result's `reason`."""
    result: Dict[str, Any] = {"v": 1, "path": str(path), "loaded": False, "reason": None, "way_out": None}
    try:
        file = identify(path)
        result.update(sha256=file.sha256, kind=file.kind, saved_with=file.saved_with)
        if file.refusal:
            raise file.refusal
    except Refusal as refusal:
        return {**result, "reason": refusal.reason, "way_out": refusal.way_out}
    try:
        trusted = _imported(file, modules, folder)
        return {**result, "loaded": True, **_read(file, trusted, safe=not unsafe)}
    except Exception as error:
        why = explain(error, file)
        return {**result, **_versions(), "reason": why.reason, "way_out": why.way_out}


def _imported(file: ModelFile, modules: List[str], folder: Optional[Path]) -> List[str]:
    """Import the modules asked for, and those of the model's own classes that lie in `folder`."""
    named = [name for name in file.modules if folder and _lies_in(folder, name)]
    if folder and (modules or named) and str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    for module in [*modules, *named]:
        __import__(module)
    return [*modules, *named]


def _lies_in(folder: Path, module: str) -> bool:
    place = folder.joinpath(*module.split("."))
    return place.with_suffix(".py").is_file() or (place / "__init__.py").is_file()


def _read(file: ModelFile, trusted: List[str], *, safe: bool) -> Dict[str, Any]:
    from . import prepare
    from .predict import load_and_predict, versions, weights_in_their_model

    if file.predicts:
        return load_and_predict(file, safe=safe)
    if file.kind in ("pickle", "text"):
        return {**prepare.read(file, tuple(trusted), safe=safe), **versions()}
    return weights_in_their_model(file, safe=safe)


def _versions() -> Dict[str, Any]:
    from .predict import versions

    return versions()


def _earlier(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return {"loaded": False, "reason": f"the earlier result cannot be read: {error}"}


def _of(earlier: Any, place: int) -> Dict[str, Any]:
    """The earlier result of the path at `place`."""
    results = earlier.get("results") if isinstance(earlier, dict) else None
    value = results[place] if isinstance(results, list) and place < len(results) else earlier
    return value if isinstance(value, dict) else {"loaded": False, "reason": "the earlier result is not one"}
