"""A project folder with its own leases, driven by the command line as its user drives it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.forked_orch import Orch

TINY_LOCK = (
    "six==1.17.0 \\\n"
    "    --hash=sha256:4721f391ed90541fddacab5acf947aa0d3dc7d27b2e1e8eda2be8970586c3274 \\\n"
    "    --hash=sha256:ff70335d468e7eb6ec65b95b99d3a2836546063f63acc5171de367e834932a81\n"
)
"""The smallest stack there is: one pure package."""


@dataclass
class Project:
    """`folder` is where commands are typed; `state` keeps this test's machines apart from the user's."""

    folder: Path
    state: Path
    environ: dict[str, str] = field(default_factory=dict)

    def env(self) -> dict[str, str]:
        theirs = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return {**theirs, "ORCH_STATE_HOME": str(self.state), "NO_COLOR": "1", **self.environ}

    def start(self, *argv: str, **environ: str) -> subprocess.Popen[bytes]:
        return Orch(
            argv,
            cwd=self.folder,
            env={**self.env(), **environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def orch(self, *argv: str, code: int = 0, timeout: float = 600, **environ: str) -> Said:
        """Run `orch argv` and demand its exit code."""
        process = self.start(*argv, **environ)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            raise AssertionError(f"orch {argv} hangs:\n{out.decode()}\n{err.decode()}") from None
        said = Said(process.returncode, out.decode(errors="replace"), err.decode(errors="replace"))
        assert said.code == code, f"orch {' '.join(argv)} ended with {said.code}:\n{said.out}\n{said.err}"
        return said

    def json(self, *argv: str, code: int = 0, **environ: str) -> dict[str, Any]:
        said = self.orch(argv[0], "--json", *argv[1:], code=code, timeout=600, **environ)
        value: dict[str, Any] = json.loads(said.out)
        return value


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str


HELLO = """\
import pathlib
pathlib.Path("out").mkdir()
pathlib.Path("out/note").write_text("hello")
print("hello")
"""
"""A train.py that writes the output `out`."""


def tiny(folder: Path, state: Path, script: str, *, memory: str = "1 GiB", disk: str = "1 GiB") -> Project:
    """A project whose train.py is `script` and whose stack is one small package."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.py").write_text(script)
    (folder / "requirements.lock").write_text(TINY_LOCK)
    (folder / "orch.yaml").write_text(
        "version: 1\nname: tiny\ncloud: local\n"
        f"resources: {{cpus: 1, memory: {memory}, disk: {disk}}}\n"
        "max_duration: 30m\n"
        "train:\n  command: python train.py\n"
    )
    return Project(folder, state)


def until(holds: Callable[[], bool], patience_s: float) -> None:
    """Wait until it holds; fail when patience ends."""
    end = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < end, "it never came to hold"
        time.sleep(0.2)
