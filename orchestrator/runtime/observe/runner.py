"""`run [-m MODULE | SCRIPT] ARG…`: run a Python program with observation, if PYTHONPATH has no effect."""

from __future__ import annotations

import os
import runpy
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import List, Optional

from . import observation
from .imports import FRAMEWORKS, ImportHook, notifier


def main(argv: List[str]) -> int:
    """Run the program in this interpreter. Its own exit ends the process; returns 2 if no program is
    given."""
    if argv[:1] == ["run"]:
        argv = argv[1:]
    wanted = observation(os.environ)
    if wanted is not None:
        ImportHook(FRAMEWORKS, notifier([wanted])).install()
    if argv[:1] == ["-m"] and len(argv) > 1:
        sys.argv = argv[1:]
        sys.path.insert(0, "")
        run_as_main(argv[1], module=True)
    elif argv:
        sys.argv = argv
        sys.path.insert(0, str(Path(argv[0]).resolve().parent))
        run_as_main(argv[0])
    else:
        print("run: name a script, or -m and a module", file=sys.stderr)
        return 2
    return 0


def run_as_main(program: str, *, module: bool = False) -> None:
    """Run a file, or a module by its name, as `__main__`.

    After it has ended, `__main__` is again the file that started this interpreter. Records that are written
    then have to name the program, so that module's `__file__` is set to the program's file, too.
    """
    file = _file_of(program) if module else os.path.abspath(program)  # noqa: PTH100
    sys.modules["__main__"].__file__ = file
    if module:
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(program, run_name="__main__")


def _file_of(module: str) -> Optional[str]:
    """Return the file that `python -m MODULE` runs; None if there is none."""
    try:
        spec = find_spec(module)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = find_spec(f"{module}.__main__")
    except (ImportError, AttributeError, ValueError):  # runpy reports it
        return None
    return spec.origin if spec else None
