"""A machine that lies: the real runtime answers, and then its answers are altered on the way."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from orchestrator.hosts.here import HereChannel, HereHost
from orchestrator.model import Completed

FLOOD = ("yes", "x" * 4000)
ONE_LINE = ("cat", "/dev/zero")
SILENCE = ("sleep", "1000")
DEEP = b"[" * 200_000 + b"]" * 200_000

Alter = Callable[[Any], Any]
"""From the JSON value that the real runtime gave to the one that arrives."""


class Lying(HereHost):
    """This computer, which lies when it is asked for `verb`: by `instead`, another command or these bytes,
    or by `alter`, which changes the answer that is true."""

    def __init__(
        self,
        verb: str,
        *,
        instead: tuple[str, ...] | bytes | None = None,
        alter: Alter | None = None,
        status: int | None = None,
    ) -> None:
        self._verb = verb
        self._instead = instead
        self._alter = alter
        self._status = status
        self.lies = 0

    def run(self, argv: Sequence[str], **options: Any) -> Completed:
        if self._verb not in argv:
            return super().run(argv, **options)
        self.lies += 1
        if isinstance(self._instead, tuple):
            return super().run(self._instead, **options)
        if isinstance(self._instead, bytes):
            done = Completed(tuple(argv), 0, self._instead, self._instead)
            return done if self._status is None else replace(done, returncode=self._status)
        done = super().run(argv, **options)
        if self._alter:
            done = replace(done, stdout=json.dumps(self._alter(json.loads(done.stdout))).encode())
        return done if self._status is None else replace(done, returncode=self._status)

    def open(self, argv: Sequence[str]) -> HereChannel:
        if self._verb not in argv or not isinstance(self._instead, tuple):
            return super().open(argv)
        self.lies += 1
        return super().open(self._instead)


def put(*place: str | int, to: Any) -> Alter:
    """The answer with `to` at `place`, a path of keys and indexes."""

    def alter(found: Any) -> Any:
        at = found
        for key in place[:-1]:
            at = at[key]
        at[place[-1]] = to
        return found

    return alter


def without(key: str) -> Alter:
    """The answer without one key."""
    return lambda found: {name: each for name, each in found.items() if name != key}
