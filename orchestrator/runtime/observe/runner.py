"""`run [-m MODULE | SCRIPT] ARG…`: run a Python program observed, where PYTHONPATH is not honoured."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path
from typing import List

from . import observation
from .imports import FRAMEWORKS, ImportHook, notifier


def main(argv: List[str]) -> int:
    """Run the program in this interpreter. Its own exit is ours; 2 where there is nothing to run."""
    if argv[:1] == ["run"]:
        argv = argv[1:]
    wanted = observation(os.environ)
    if wanted is not None:
        ImportHook(FRAMEWORKS, notifier([wanted])).install()
    if argv[:1] == ["-m"] and len(argv) > 1:
        sys.argv = argv[1:]
        sys.path.insert(0, "")
        runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
    elif argv:
        sys.argv = argv
        sys.path.insert(0, str(Path(argv[0]).resolve().parent))
        runpy.run_path(argv[0], run_name="__main__")
    else:
        print("run: name a script, or -m and a module", file=sys.stderr)
        return 2
    return 0
