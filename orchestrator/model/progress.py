"""Report progress to the user."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Progress(Protocol):
    """Where long operations report what they do. For display only: nothing is decided by it."""

    def say(self, text: str) -> None: ...
    def transfer(self, label: str, done: int, total: int) -> None:
        """Report `done` of `total` bytes of `label`. May be called at any rate; the last call has done ==
        total.

        A `total` of 0: the operation has no size. A `label` of "" ends such an operation. See `doing`.
        """


class Silent:
    """Progress that is shown to nobody."""

    def say(self, text: str) -> None: ...
    def transfer(self, label: str, done: int, total: int) -> None: ...


@contextmanager
def doing(progress: Progress, what: str) -> Iterator[None]:
    """Show on a terminal what the block does, while it runs. Elsewhere, nothing is printed."""
    progress.transfer(what, 0, 0)
    try:
        yield
    finally:
        progress.transfer("", 0, 0)
