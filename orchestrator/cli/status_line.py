"""A status line at the bottom of the terminal, below text that scrolls as usual."""

from __future__ import annotations

import os
import threading
from typing import BinaryIO

_LEAST_ROWS = 5

_SAVE, _RESTORE = "\x1b7", "\x1b8"
_MAKE_ROOM = "\x1bD\x1b[1A"
"""Move the cursor down one row, which scrolls if it is in the last row, and up again."""


class StatusLine:
    """Reserves the last row of the terminal at `stream`, by a scrolling region (DECSTBM).

    The cursor stays where the text left it, so unfinished lines and progress bars are not disturbed. Nothing
    is drawn on a terminal of less than 5 rows. Safe to call from several threads, if other writers to
    `stream` hold `lock`.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self.lock = threading.RLock()
        self._stream = stream
        self._rows: int | None = None

    def draw(self, text: str, columns: int) -> None:
        """Show `text`: at most `columns` - 1 columns, without control characters other than colours."""
        with self.lock:
            now, rows = self._size()
            if rows < _LEAST_ROWS or columns != now:
                return  # the terminal is changing its size: the next call draws
            begin = "" if rows == self._rows else self._reserve(rows)
            self._write(f"{begin}{_SAVE}\x1b[{rows};1H\x1b[2K{text}\x1b[0m{_RESTORE}")

    @property
    def columns(self) -> int:
        """The width of the terminal."""
        return self._size()[0]

    def close(self) -> None:
        """Clear the row and release it. May be called again."""
        with self.lock:
            if self._rows is not None:
                row = min(self._rows, self._size()[1])
                self._write(f"{_SAVE}\x1b[r\x1b[{row};1H\x1b[2K{_RESTORE}")
                self._rows = None

    def _reserve(self, rows: int) -> str:
        self._rows = rows
        return f"{_MAKE_ROOM}{_SAVE}\x1b[1;{rows - 1}r{_RESTORE}"

    def _write(self, text: str) -> None:
        self._stream.write(text.encode())
        self._stream.flush()

    def _size(self) -> tuple[int, int]:
        """Columns and rows; (0, 0) if they are not known."""
        try:
            found = os.get_terminal_size(self._stream.fileno())
        except OSError:
            return 0, 0
        return found.columns, found.lines
