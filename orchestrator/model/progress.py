"""Telling the user while it happens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Progress(Protocol):
    """Where long work tells what it does. Decorative: it never decides."""

    def say(self, text: str) -> None: ...
    def transfer(self, label: str, done: int, total: int) -> None:
        """`done` of `total` bytes of `label`; call as often as you like, and once with done == total.

        `total` 0: what is being done has no size; a `label` of "" ends that. See `doing`.
        """


class Silent:
    """Progress for nobody."""

    def say(self, text: str) -> None: ...
    def transfer(self, label: str, done: int, total: int) -> None: ...


@contextmanager
def doing(progress: Progress, what: str) -> Iterator[None]:
    """Show on a terminal what the block does, while it does it. Nothing is printed elsewhere."""
    progress.transfer(what, 0, 0)
    try:
        yield
    finally:
        progress.transfer("", 0, 0)
