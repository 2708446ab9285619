"""A zygote on this computer, spoken to: frameworks imported once, every run a fork (see runtime.zygote)."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.model import Agent


class ZygoteLost(Exception):
    """It ended, or did not answer in time. Holds what it printed last."""


class Zygote:
    """One zygote. `environment` is what its imports see."""

    def __init__(
        self, agent: Agent, python: str, modules: Sequence[str], environment: Mapping[str, str], diary: Path
    ) -> None:
        self.last_used = time.monotonic()
        self._diary = diary
        with open(diary, "wb") as said:
            self._process = subprocess.Popen(
                [python, f"{agent.root}/enter.py", "zygote", *modules],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                env=dict(environment),
                cwd=diary.parent,
            )
        self._begun = time.monotonic()
        self.import_seconds: float | None = None
        self._rest = b""

    def ready(self, until: float) -> None:
        """Wait until its imports are done. Raises ZygoteLost."""
        if self.import_seconds is None:
            self._answer(until)
            self.import_seconds = time.monotonic() - self._begun

    def run(self, request: Mapping[str, Any], until: float) -> dict[str, Any]:
        """Run a program in a fork; how it ended. `until`: on time.monotonic(). Raises ZygoteLost."""
        self.ready(until)
        left = max(1.0, until - time.monotonic())
        assert self._process.stdin
        try:
            self._process.stdin.write((json.dumps({**request, "timeout": left}) + "\n").encode())
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise ZygoteLost(self._said()) from error
        self.last_used = time.monotonic()
        return self._answer(until + 10)

    def close(self) -> None:
        """End it, and with it whatever still runs in it."""
        if self._process.stdin:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        try:
            self._process.wait(2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()

    def _answer(self, until: float) -> dict[str, Any]:
        assert self._process.stdout
        source = self._process.stdout.fileno()
        while b"\n" not in self._rest:
            readable, _, _ = select.select([source], [], [], max(0.0, until - time.monotonic()))
            block = os.read(source, 1 << 16) if readable else b""
            if not block:
                raise ZygoteLost(self._said() if readable else "it took too long")
            self._rest += block
        line, _, self._rest = self._rest.partition(b"\n")
        value: dict[str, Any] = json.loads(line)
        return value

    def _said(self) -> str:
        lines = self._diary.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it ended without a word"
