"""Load models in a sandbox, and say what they predict: `check-model PATH…`.

Runs in the Python environment that should be able to load the models. The files are treated as hostile: an
isolated process reads them (inside.py); this one only starts it and parses its answers (sandbox.py).

Prints one JSON object: path, sha256, kind, loaded, inputs, outputs (with values: base64 of little-endian
bits), tensors (of weights, and of objects that prepare the input), note, reason, way_out, not_checked,
isolation, versions. For several paths, the objects are in the list `results`. compare.py compares two
results. With `--ahead FOLDER`, paths in that folder are named later, on standard input (waiting.py).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any, Dict, List

from .sandbox import Limits, Request, answers

_MOST_VALUES = 64 << 20
"""Characters of base64 for the values of all files together."""


def main(argv: List[str]) -> int:
    """Print the result. Returns 0 even if the model does not load, because that is a result; 2 for a wrong
    command line."""
    options = _parser().parse_args(argv[1:] if argv[:1] == ["check-model"] else argv)
    limits = Limits(seconds=options.seconds, memory=options.memory << 20)
    paths = [os.path.abspath(path) for path in options.paths]  # noqa: PTH100 # links stay
    request = Request(paths, options.modules, options.folder, limits)
    if options.ahead is not None:
        from .waiting import checked_ahead

        found = checked_ahead(request, os.path.abspath(options.ahead))  # noqa: PTH100
        return _print(found) if found is not None else 0
    if not paths:
        print("check-model: name a path", file=sys.stderr)
        return 2
    results = answers(request)
    for shown, result in zip(options.paths, results):  # noqa: B905
        result["path"] = str(shown)
    return _print(results)


def _print(results: List[Dict[str, Any]]) -> int:
    _bound(results)
    print(json.dumps(results[0] if len(results) == 1 else {"v": 1, "results": results}, sort_keys=True))
    return 0


def _bound(results: List[Dict[str, Any]]) -> None:
    """Set the values of arrays to None once all results together exceed _MOST_VALUES; digests are kept."""
    spent = 0
    for result in results:
        for array in [*result.get("tensors", ()), *result.get("outputs", ())]:
            spent += len(array.get("values") or "")
            if spent > _MOST_VALUES and "values" in array:
                array["values"] = None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="check-model")
    parser.add_argument("paths", type=Path, nargs="*", metavar="PATH")
    parser.add_argument("--ahead", metavar="FOLDER", help="its files are named on standard input, later")
    parser.add_argument("--import", dest="modules", action="append", default=[], metavar="MODULE")
    parser.add_argument("--folder", type=Path, help="where those modules lie, unless they are installed")
    parser.add_argument("--seconds", type=float, default=Limits.seconds, help="for all files together")
    parser.add_argument(
        "--memory", type=int, default=Limits.memory >> 20, help="MiB; 0: half of what is free"
    )
    return parser
