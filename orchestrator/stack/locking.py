"""Make a lock: resolve what a project asks for to exact versions with hashes, by uv."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from orchestrator.stack.interpreter import interpreter
from orchestrator.stack.local import base_python
from orchestrator.stack.uv import run_uv


def make_lock(source: Path, lock: Path, *, upgrade: bool = False) -> str:
    """Write `lock` from the requirements in `source`, for the version of Python that the project in its
    folder asks for; return that version.

    Versions in an existing `lock` stay if they still fit, unless `upgrade`. On a computer that is not Linux,
    the lock is for every platform: machines have Linux. Raise StackError if nothing satisfies `source`.
    """
    project = source.parent
    version = ".".join(interpreter(base_python(None, project)).version.split(".")[:2])
    arguments = ["pip", "compile", "--generate-hashes", "--python-version", version]
    arguments += ["--universal"] if sys.platform != "linux" else []
    arguments += ["--upgrade"] if upgrade else []
    named = (source.name, "-o", os.path.relpath(lock, project))
    run_uv([*arguments, *named], cwd=project, purpose=f"{source} cannot be locked:")
    return version
