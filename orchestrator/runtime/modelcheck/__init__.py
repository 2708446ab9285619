"""`check-model PATH [--expect FILE]`: does this model load here, and what does it predict?

Runs in the environment that should load the model. Prints one JSON object: path, sha256, kind, loaded,
inputs, outputs (with values, base64 of little-endian bits), reason, way_out, versions; with --expect (a
file that holds an earlier result, from elsewhere) also equal, equivalent, max_abs and relative.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any, Dict, List

from .compare import against
from .explain import Refusal, explain
from .files import identify


def main(argv: List[str]) -> int:
    """Print the result; 0 also where the model does not load, for that is a result. 2 for a wrong command."""
    parser = argparse.ArgumentParser(prog="check-model")
    parser.add_argument("path", type=Path)
    parser.add_argument("--expect", type=Path, help="an earlier result, to compare predictions with")
    parser.add_argument("--unsafe", action="store_true", help="let the file's own code run (Lambda layers)")
    parser.add_argument("--import", dest="modules", action="append", default=[], metavar="MODULE")
    parser.add_argument("--folder", type=Path, help="where those modules lie")
    options = parser.parse_args(argv[1:] if argv[:1] == ["check-model"] else argv)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    with contextlib.redirect_stdout(sys.stderr):  # frameworks talk; standard output is for the result
        result = check(options.path, options.modules, options.folder, unsafe=options.unsafe)
    if options.expect:
        result.update(against(_earlier(options.expect), result))
    print(json.dumps(result, sort_keys=True))
    return 0


def check(path: Path, modules: List[str], folder: Any = None, *, unsafe: bool = False) -> Dict[str, Any]:
    """Load the model and predict a fixed batch. Never raises: what goes wrong is the result's `reason`."""
    result: Dict[str, Any] = {"v": 1, "path": str(path), "loaded": False, "reason": None, "way_out": None}
    try:
        file = identify(path)
        result.update(sha256=file.sha256, kind=file.kind, saved_with=file.saved_with)
        if file.refusal:
            raise file.refusal
    except Refusal as refusal:
        return {**result, "reason": refusal.reason, "way_out": refusal.way_out}
    try:
        from .predict import load_and_predict

        if folder:
            sys.path.insert(0, str(folder))
        for module in modules:
            __import__(module)
        return {**result, "loaded": True, **load_and_predict(file, safe=not unsafe)}
    except Exception as error:
        why = explain(error, file)
        return {**result, **_versions(), "reason": why.reason, "way_out": why.way_out}


def _versions() -> Dict[str, Any]:
    from .predict import versions

    return versions()


def _earlier(path: Path) -> Dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return {"loaded": False, "reason": f"the earlier result cannot be read: {error}"}
    return value if isinstance(value, dict) else {"loaded": False, "reason": "the earlier result is not one"}
