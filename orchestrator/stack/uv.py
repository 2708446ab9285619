"""Find and run uv, which resolves, verifies and links packages."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from orchestrator.errors import StackError
from orchestrator.stack.indexes import pip_as_uv, without_secrets


@cache
def uv_binary() -> Path:
    """Return the uv binary of this installation (the PyPI package uv has it). Raise StackError if it is
    missing.
    """
    import uv

    try:
        return Path(uv.find_uv_bin())
    except FileNotFoundError:
        raise StackError(
            "The uv that came with this installation is gone.",
            next_command="python -m pip install --force-reinstall uv",
        ) from None


def run_uv(
    arguments: Sequence[str | Path],
    *,
    purpose: str,
    stdin: str = "",
    cwd: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> str:
    """Run uv and return its standard output. If it fails with the user's uv settings, try again with those of
    pip.

    Raise StackError with a message that begins with `purpose` and ends with what uv printed.
    """
    surroundings = dict(os.environ if environ is None else environ)
    done = _run(arguments, stdin, cwd, surroundings)
    settings = {**pip_as_uv(surroundings), **_certificates(surroundings, done.stderr)}
    if done.returncode and settings:
        second = _run(arguments, stdin, cwd, {**surroundings, **settings})
        done = second if second.returncode == 0 else done
    if done.returncode:
        raise StackError(f"{purpose}\n{without_secrets(done.stderr.strip())}")
    return done.stdout


def _certificates(environ: Mapping[str, str], said: str) -> dict[str, str]:
    """Return the variable that selects pip's certificates, or else this system's, if uv rejected a
    certificate.
    """
    if "certificate" not in said or "SSL_CERT_FILE" in environ:
        return {}
    return {"SSL_CERT_FILE": environ["PIP_CERT"]} if "PIP_CERT" in environ else {"UV_SYSTEM_CERTS": "1"}


def _run(
    arguments: Sequence[str | Path], stdin: str, cwd: Path | None, environ: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    argv = [str(uv_binary()), *map(str, arguments), "--no-progress", "--color", "never"]
    return subprocess.run(
        argv, input=stdin, cwd=cwd, env=_clean(environ), capture_output=True, text=True, check=False
    )


def _clean(environ: Mapping[str, str]) -> dict[str, str]:
    """Remove activated environments, so that uv neither reads nor changes one."""
    return {name: value for name, value in environ.items() if name not in {"VIRTUAL_ENV", "CONDA_PREFIX"}}
