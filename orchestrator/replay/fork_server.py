"""A fork server on this computer: frameworks are imported once, and every run is a fork. See
runtime.replay.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypedDict, TypeVar

from orchestrator.model import Agent
from orchestrator.model.answers import SHORT, Between, Malformed, Moment, Most, decoded
from orchestrator.model.files import last_bytes
from orchestrator.model.plain import last_words

_LAST = 4096
"""Bytes at the end of its log that are read."""

Number = Annotated[int, Between(-(1 << 31), 1 << 31)]


class Ready(TypedDict):
    """The first line of the fork server: what it imported."""

    ready: Annotated[list[str], Most(10_000)]
    seconds: Moment


class Ended(TypedDict):
    """How a program in a fork ended."""

    code: Number | None
    signal: Number | None
    timed_out: bool
    seconds: Moment


T = TypeVar("T")


class ForkServerLost(Exception):
    """The fork server ended, did not answer in time, or gave an invalid answer. Contains the reason, or
    its last output.
    """


class ForkServer:
    """One fork server. `environment` is what its imports see."""

    def __init__(
        self, agent: Agent, python: str, modules: Sequence[str], environment: Mapping[str, str], diary: Path
    ) -> None:
        self.last_used = time.monotonic()
        self._diary = diary
        with open(diary, "wb") as said:
            self._process = subprocess.Popen(
                [python, f"{agent.root}/enter.py", "fork-server", *modules],
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
        """Wait until its imports are done. Raises ForkServerLost."""
        if self.import_seconds is None:
            _answered(Ready, self._line(until))
            self.import_seconds = time.monotonic() - self._begun

    def left(self, usual: float) -> float:
        """Return the seconds until its imports are done, if they take the `usual` time."""
        return 0.0 if self.import_seconds is not None else max(0.0, self._begun + usual - time.monotonic())

    def run(self, request: Mapping[str, Any], until: float) -> Ended:
        """Run a program in a fork; returns how it ended. `until`: on time.monotonic(). Raises
        ForkServerLost.
        """
        self.ready(until)
        left = max(1.0, until - time.monotonic())
        assert self._process.stdin
        try:
            self._process.stdin.write((json.dumps({**request, "timeout": left}) + "\n").encode())
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise ForkServerLost(self._said()) from error
        self.last_used = time.monotonic()
        return _answered(Ended, self._line(until + 10))

    def close(self) -> None:
        """End it, and everything that still runs in it."""
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

    def _line(self, until: float) -> bytes:
        """Read the next line, which is the answer to the only request."""
        assert self._process.stdout
        source = self._process.stdout.fileno()
        while b"\n" not in self._rest:
            readable, _, _ = select.select([source], [], [], max(0.0, until - time.monotonic()))
            block = os.read(source, 1 << 16) if readable else b""
            if not block:
                raise ForkServerLost(self._said() if readable else "it took too long")
            self._rest += block
            if len(self._rest) > SHORT:
                raise ForkServerLost(f"it answered with more than {SHORT:,} bytes")
        line, _, self._rest = self._rest.partition(b"\n")
        if self._rest:
            raise ForkServerLost("it sent more than one answer")
        return line

    def _said(self) -> str:
        lines = last_bytes(self._diary, _LAST).strip().splitlines()
        return last_words(lines[-1]) if lines else "it ended without output"


def _answered(shape: type[T], line: bytes) -> T:
    try:
        return decoded(shape, line)
    except Malformed as error:
        raise ForkServerLost(f"its answer is invalid: {error}") from None


class ForkServers:
    """At most `most` fork servers at once: each holds the frameworks in memory."""

    def __init__(self, most: int = 2) -> None:
        self.most = most
        self._known: dict[str, ForkServer] = {}
        self._diaries = Path(tempfile.mkdtemp(prefix="orch-fork-servers-"))
        self._made = 0

    def __contains__(self, key: str) -> bool:
        return key in self._known

    def left(self, key: str, usual: float) -> float:
        """Return the seconds until the imports of that key's fork server are done, if they take the `usual`
        time."""
        server = self._known.get(key)
        return usual if server is None else server.left(usual)

    @property
    def room(self) -> bool:
        """Return whether one more can be started without ending another."""
        return len(self._known) < self.most

    def get(
        self, key: str, agent: Agent, python: str, modules: Sequence[str], environment: Mapping[str, str]
    ) -> ForkServer:
        """Return the fork server of that key. If there is none, start one, in place of the longest unused one
        if necessary."""
        if key not in self._known:
            while not self.room:
                self.forget(min(self._known, key=lambda known: self._known[known].last_used))
            self._made += 1
            diary = self._diaries / f"fork-server-{self._made}.log"
            self._known[key] = ForkServer(agent, python, modules, environment, diary)
        return self._known[key]

    def forget(self, key: str) -> None:
        """End the fork server of one key."""
        server = self._known.pop(key, None)
        if server:
            server.close()

    def close(self) -> None:
        """End them all."""
        for key in list(self._known):
            self.forget(key)
        shutil.rmtree(self._diaries, ignore_errors=True)
