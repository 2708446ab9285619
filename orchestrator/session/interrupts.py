"""Distinguish an interrupt before a run has started from one after it."""

from __future__ import annotations

from orchestrator.errors import BeforeTheRun


class Interrupts:
    """An interrupt detaches from a run that has `begun`; before that it raises BeforeTheRun."""

    begun = False

    def __enter__(self) -> Interrupts:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is KeyboardInterrupt and not self.begun:
            raise BeforeTheRun from None
