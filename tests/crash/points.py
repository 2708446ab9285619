"""Numbered crash points: every change that a process makes outside of its memory, and a kill before one."""

from __future__ import annotations

import itertools
import mmap
import os
import re
import signal
import sys
from dataclasses import dataclass, field
from typing import Any

EFFECT = "orch.effect"
"""The audit event by which tests announce an effect that Python does not audit, such as a cloud's call."""

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_EFFECTS = frozenset(
    (
        EFFECT,
        "os.rename",
        "os.remove",
        "os.rmdir",
        "os.mkdir",
        "os.link",
        "os.symlink",
        "os.truncate",
        "subprocess.Popen",
        "os.posix_spawn",
        "socket.connect",
    )
)
_IGNORED = ("__pycache__", "/dev/null", "/proc/")
INSIDE = "/inside-the-cloud/"
"""A folder of this name holds what a test's cloud does by itself: no effect of its caller."""
_SIZE = 4096


@dataclass
class Points:
    """Counts effects in the process that arms it. The numbers survive a SIGKILL: they lie in shared memory.

    Make it before the fork, `arm` it in the child, read `count` and `last` in the parent.
    """

    _shared: mmap.mmap = field(default_factory=lambda: mmap.mmap(-1, _SIZE))

    def arm(self, kill_before: int | str | None) -> None:
        """From now on count; with `kill_before`, end this process by SIGKILL before that effect.

        The effect is given by its number (from 1), or by a pattern that it is the first to show. Attempts to
        connect to one address, with no other effect between them, are one effect.
        """
        owner, counted = os.getpid(), itertools.count(1)
        dialled: list[str] = []

        def look(event: str, arguments: tuple[Any, ...]) -> None:
            if os.getpid() != owner or not _is_effect(event, arguments):
                return
            address = [str(arguments[1])] if event == "socket.connect" else []
            if address and address == dialled:
                return
            dialled[:] = address
            number, shown = next(counted), f"{event} {_shown(arguments)}"
            self._note(number, shown)
            if number == kill_before or (isinstance(kill_before, str) and re.search(kill_before, shown)):
                os.kill(owner, signal.SIGKILL)

        sys.addaudithook(look)

    @property
    def count(self) -> int:
        return int.from_bytes(self._shared[:4], "little")

    @property
    def last(self) -> str:
        """The effect that was counted last."""
        return bytes(self._shared[4:]).partition(b"\0")[0].decode(errors="replace")

    def _note(self, count: int, text: str) -> None:
        self._shared[:4] = count.to_bytes(4, "little")
        line = text.encode(errors="replace")[: _SIZE - 5]
        self._shared[4 : 5 + len(line)] = line + b"\0"


def _is_effect(event: str, arguments: tuple[Any, ...]) -> bool:
    if event == "open":
        path, _, flags = arguments
        writes = isinstance(flags, int) and bool(flags & _WRITES)
        return writes and not any(part in str(path) for part in (*_IGNORED, INSIDE))
    return event in _EFFECTS and not any(part in _shown(arguments) for part in (*_IGNORED, INSIDE))


def _shown(arguments: tuple[Any, ...]) -> str:
    return " ".join(str(one) for one in arguments if not isinstance(one, int))[:300]
