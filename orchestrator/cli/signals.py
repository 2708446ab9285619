"""Signals that a scheduler or a closing terminal sends to end a command."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_STOPS = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def stopped_as_interrupted() -> Iterator[None]:
    """In the block, SIGTERM and SIGHUP raise KeyboardInterrupt, so that the command can report what still
    exists.

    A second one ends the process at once. A signal that is ignored (nohup) stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    caught = [number for number in _STOPS if signal.getsignal(number) is signal.SIG_DFL]

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        for number in caught:
            signal.signal(number, signal.SIG_DFL)
        raise KeyboardInterrupt

    for number in caught:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number in caught:
            signal.signal(number, signal.SIG_DFL)
