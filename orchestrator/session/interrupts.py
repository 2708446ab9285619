"""An interrupt before a run was started, and one after it."""

from __future__ import annotations

from orchestrator.errors import BeforeTheRun


class Interrupts:
    """An interrupt lets go of a run that `begun`; before, there is none to let go of: BeforeTheRun."""

    begun = False

    def __enter__(self) -> Interrupts:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is KeyboardInterrupt and not self.begun:
            raise BeforeTheRun from None
