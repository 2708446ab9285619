"""A Python interpreter as facts, read by asking it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from orchestrator.errors import StackError

PROBE = (Path(__file__).resolve().parent.parent / "runtime/probe.py").read_text("utf-8")
"""The program that an interpreter runs, by `-I -c`, to say what it is."""


@dataclass(frozen=True)
class Interpreter:
    """One interpreter. `executable` as it was given; the paths below it are those of its base installation.

    `flags` are its ABI's ("t" for free threading); `missing` names modules of the standard library that
    it was built without; `markers` is its PEP 508 environment.
    """

    executable: str
    version: str
    implementation: str
    flags: str
    build: str
    base_executable: str
    base_prefix: str
    stdlib: str
    include: str
    system: str
    machine: str
    libc: str
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


def parse(text: str) -> Interpreter:
    """The Interpreter in the output of `PROBE`. Raises ValueError where that is something else."""
    facts = json.loads(text)
    names = Interpreter.__dataclass_fields__
    return Interpreter(**{**{name: facts[name] for name in names}, "missing": tuple(facts["missing"])})


@cache
def interpreter(python: Path) -> Interpreter:
    """Ask `python` what it is. Raises StackError where it does not answer like a Python."""
    try:
        done = subprocess.run(
            [str(python), "-I", "-c", PROBE], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StackError(f"The interpreter {python} does not run: {error}.") from error
    try:
        return parse(done.stdout)
    except (ValueError, KeyError, TypeError):
        said = (done.stderr or done.stdout).strip().splitlines()
        raise StackError(
            f"{python} is no usable Python interpreter: {said[-1] if said else 'it said nothing'}"
        ) from None
