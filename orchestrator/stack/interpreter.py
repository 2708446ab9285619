"""The facts of a Python interpreter, read by running it."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated

from orchestrator.errors import StackError
from orchestrator.model.answers import Like, Malformed, decoded
from orchestrator.model.plain import last_words

PROBE = (Path(__file__).resolve().parent.parent / "runtime/attest/probe.py").read_text("utf-8")
"""The program that an interpreter runs, with `-I -c`, to report its facts."""

_NAME = r"[A-Za-z0-9_.-]{0,64}"


@dataclass(frozen=True)
class Interpreter:
    """One interpreter. `executable` as it was given; the paths below it are those of its base installation.

    `flags`: those of its ABI ("t" for free threading). `missing`: modules of the standard library that it was
    built without. `markers`: its PEP 508 environment.
    """

    executable: str
    version: Annotated[str, Like(r"[0-9][0-9A-Za-z.+]{0,40}")]
    implementation: Annotated[str, Like("[A-Za-z]{1,40}")]
    flags: Annotated[str, Like("[a-z]{0,8}")]
    build: str
    base_executable: str
    base_prefix: str
    stdlib: str
    include: str
    system: Annotated[str, Like(_NAME)]
    machine: Annotated[str, Like(_NAME)]
    libc: Annotated[str, Like(r"|[ -~]{1,80}")]
    missing: tuple[str, ...]
    markers: Mapping[str, str]

    @property
    def key(self) -> str:
        """What must be the same on both sides: "cpython-3.11.7"."""
        return f"{self.implementation}-{self.version}{self.flags}"

    @property
    def name(self) -> str:
        """The usual name of its binary: "python3.11"."""
        return f"python{'.'.join(self.version.split('.')[:2])}{self.flags}"


def parse(text: bytes) -> Interpreter:
    """Return the Interpreter in the output of `PROBE`. Raise Malformed if the output is something else."""
    return decoded(Interpreter, text)


@cache
def interpreter(python: Path) -> Interpreter:
    """Return the facts of `python`. Raise StackError if it does not run, or is not a usable Python."""
    try:
        done = subprocess.run([str(python), "-I", "-c", PROBE], capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StackError(f"The interpreter {python} does not run: {error}.") from error
    try:
        return parse(done.stdout)
    except Malformed:
        said = last_words(done.stderr or done.stdout, 200) or "it said nothing"
        raise StackError(f"{python} is not a usable Python interpreter: {said}") from None
