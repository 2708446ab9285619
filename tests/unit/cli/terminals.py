"""A terminal of our own: what a program writes to it is drawn by pyte, as a real one draws it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import termios
import threading
import time
from typing import TextIO

import pyte


class Terminal:
    """`stream` writes to it. Lines that scrolled off the top are kept."""

    def __init__(self, columns: int = 80, rows: int = 12) -> None:
        self._ours, theirs = pty.openpty()
        self.stream: TextIO = os.fdopen(theirs, "w", encoding="utf-8")
        self.screen = pyte.HistoryScreen(columns, rows, history=5_000, ratio=0.5)
        self._drawn = pyte.ByteStream(self.screen)
        self._lock = threading.Lock()
        self.seen: set[str] = set()
        """Every text that was in the last row at some time."""
        self.resize(columns, rows)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def resize(self, columns: int, rows: int) -> None:
        self.settle()
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        with self._lock:
            self.screen.resize(rows, columns)

    def close(self) -> None:
        """Wait until all that was written is drawn."""
        if not self.stream.closed:
            self.stream.close()
        self._reader.join(10)

    @property
    def last_row(self) -> str:
        with self._lock:
            return str(self.screen.display[-1]).rstrip()

    def text(self) -> list[str]:
        """Return all lines from the first one, without blank ones at the end."""
        with self._lock:
            gone = [
                "".join(line[at].data for at in range(self.screen.columns))
                for line in self.screen.history.top
            ]
            lines = [line.rstrip() for line in (*gone, *self.screen.display)]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    def settle(self) -> None:
        """Wait until all that was written is drawn."""
        while True:
            with self._lock:
                if not _waiting(self._ours):
                    return
            time.sleep(0.01)

    def _read(self) -> None:
        try:
            while True:
                select.select([self._ours], [], [])
                with self._lock:
                    self._draw(os.read(self._ours, 1 << 16))
        except OSError:
            os.close(self._ours)

    def _draw(self, data: bytes) -> None:
        """Draw piece by piece, so that no state of the last row is missed."""
        for piece in re.split(rb"(?<=\x1b8)", data):
            self._drawn.feed(piece)
            self.seen.add(str(self.screen.display[-1]).rstrip())


def _waiting(descriptor: int) -> int:
    """How many bytes can be read."""
    found = fcntl.ioctl(descriptor, termios.FIONREAD, struct.pack("i", 0))
    return int(struct.unpack("i", found)[0])
