"""Read single keys while a command uses the whole terminal."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def keys() -> Iterator[Callable[[float], str]]:
    """Yield a function that waits some seconds for a key, and returns it, or "" if none was pressed.

    In the block, keys are not echoed; Ctrl-C and Ctrl-Z work as usual. If stdin is no terminal, or the
    process is in the background (`orch top &`), no key is read.
    """
    if not _ours():
        yield _none
        return
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal, termios.TCSANOW)

    def pressed(seconds: float) -> str:
        if not select.select([terminal], [], [], seconds)[0]:
            return ""
        if data := os.read(terminal, 1):
            return data.decode("ascii", "replace")
        return _none(seconds)

    try:
        yield pressed
    finally:
        termios.tcsetattr(terminal, termios.TCSANOW, before)


def _none(seconds: float) -> str:
    time.sleep(seconds)
    return ""


def _ours() -> bool:
    """Whether stdin is a terminal, and this process is in its foreground."""
    try:
        return sys.stdin.isatty() and os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError):  # stdin is closed, or not the controlling terminal
        return False
