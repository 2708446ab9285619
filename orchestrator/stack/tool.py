"""Packages that orch uses itself, each in an environment of its own, never in the project's."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from orchestrator.hosts.atomic import atomic_write
from orchestrator.model import Progress
from orchestrator.stack.local import alone
from orchestrator.stack.uv import run_uv
from orchestrator.stack.wheels import cache_home

TENSORBOARD = "tensorboard==2.21.0"


def python_with(requirement: str, progress: Progress, environ: Mapping[str, str] = os.environ) -> Path:
    """Return a Python that has the package `requirement`, which is installed by the first call.

    The environment is kept in this computer's cache. Raise StackError if the package cannot be installed, and
    LocalError if the cache cannot be written.
    """
    folder = cache_home(environ) / "tools" / f"{requirement}-py{sys.version_info[0]}.{sys.version_info[1]}"
    marker, python = folder.with_name(f"{folder.name}.complete"), folder / "bin/python"
    with alone(folder.with_name(f".{folder.name}.lock")):
        if not (marker.is_file() and python.exists()):
            progress.say(f"Installing {requirement} for orch in {folder}")
            _install(requirement, folder, environ)
            atomic_write(marker, b"")
    return python


def _install(requirement: str, folder: Path, environ: Mapping[str, str]) -> None:
    """Install into a new environment. Remains of an interrupted installation are removed first."""
    shutil.rmtree(folder, ignore_errors=True)
    purpose = f"{requirement} could not be installed:"
    base = getattr(sys, "_base_executable", sys.executable)
    run_uv(["venv", "--no-project", "--python", base, folder], purpose=purpose, environ=environ)
    run_uv(
        ["pip", "install", "--python", folder / "bin/python", requirement], purpose=purpose, environ=environ
    )
