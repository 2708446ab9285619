"""Locks of two tiny packages, made by uv as a user makes them."""

from __future__ import annotations

from pathlib import Path

from orchestrator.stack.uv import run_uv

WANTED = "six==1.17.0\npackaging==24.2\ncolorama==0.4.6; sys_platform == 'win32'\n"
PROJECT = """\
[project]
name = "demo"
version = "0.1"
requires-python = ">=3.9"
dependencies = ["six==1.17.0", "packaging==24.2", "colorama==0.4.6; sys_platform == 'win32'"]
"""


def uv(*arguments: str | Path, cwd: Path, stdin: str = "") -> str:
    """Its standard output. Index and certificates are found as orch finds them: a shell may name none."""
    return run_uv(arguments, purpose="uv failed in a test:", cwd=cwd, stdin=stdin)


def requirements_lock(folder: Path, wanted: str = WANTED) -> Path:
    text = uv("pip", "compile", "-", "--universal", "--generate-hashes", cwd=folder, stdin=wanted)
    path = folder / "requirements.lock"
    path.write_text(text)
    return path


def uv_lock(folder: Path) -> Path:
    (folder / "pyproject.toml").write_text(PROJECT)
    uv("lock", cwd=folder)
    return folder / "uv.lock"


def pylock(folder: Path) -> Path:
    uv_lock(folder)
    text = uv("export", "--frozen", "--no-emit-project", "--format", "pylock.toml", cwd=folder)
    path = folder / "pylock.toml"
    path.write_text(text)
    return path
