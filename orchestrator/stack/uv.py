"""uv, which resolves, verifies and links: where its binary is, and one way to run it."""

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
    """The uv of this installation (its PyPI package ships it). Raises StackError where it is missing."""
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
    """uv's standard output. Where the user's uv settings fail, pip's get a turn.

    Raises StackError that starts with `purpose` and ends with what uv said.
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
    """If uv rejected a certificate, the variable for the certificates of pip, else of this system."""
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
    """An activated environment must not become the target or the source of anything."""
    return {name: value for name, value in environ.items() if name not in {"VIRTUAL_ENV", "CONDA_PREFIX"}}
