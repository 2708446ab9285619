"""`orch` as a process of its own that begins after the imports; see tests/forked.py."""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import os
import pkgutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.forked import Forked

_LATE = {
    "STORAGE_EMULATOR_HOST": ("orchestrator.providers.gcp.provider", "google.cloud.compute_v1"),
    "AWS_ENDPOINT_URL": ("orchestrator.providers.aws.provider", "tests.clouds.aws_models"),
}
"""What is imported as soon as a command has this variable: its cloud's client, which takes seconds."""


class Orch(Forked):
    """`orch argv` in a new session; see subprocess.Popen for the rest."""

    def __init__(self, argv: Iterable[str], *, env: Mapping[str, str], **settings: Any) -> None:
        super().__init__("orchestrator", argv, prepared_by=__name__, env=env, **settings)


def orch(
    *argv: str, cwd: Path | None = None, env: Mapping[str, str] = os.environ, timeout: float = 240
) -> subprocess.CompletedProcess[str]:
    """Run `orch argv` to its end, as subprocess.run does with text."""
    pipe = subprocess.PIPE
    with Orch(
        argv, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True
    ) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def prepare(environ: Mapping[str, str]) -> None:
    """Import all that such a command may want."""
    _import_all()
    for module in (each for name in _LATE if name in environ for each in _LATE[name]):
        with contextlib.suppress(ImportError):  # the command says so itself
            getattr(importlib.import_module(module), "parse", int)()


@functools.cache
def _import_all() -> None:
    """Each room but Airflow's, clouds' clients, and the runtime, which is no part of this process."""
    import orchestrator

    rooms = ("__main__", "airflow.", "runtime.", "providers.", "catalog.")
    left_out = tuple(f"orchestrator.{name}" for name in rooms)
    for found in pkgutil.walk_packages(orchestrator.__path__, "orchestrator."):
        if not found.name.startswith(left_out):
            importlib.import_module(found.name)
    gc.collect()
    gc.freeze()
