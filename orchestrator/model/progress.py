"""Telling the user while it happens."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Where long work tells what it does. Decorative: it never decides."""

    def say(self, text: str) -> None: ...
    def transfer(self, label: str, done: int, total: int) -> None:
        """`done` of `total` bytes of `label`; call as often as you like, and once with done == total."""


class Silent:
    """Progress for nobody."""

    def say(self, text: str) -> None: ...
    def transfer(self, label: str, done: int, total: int) -> None: ...
