"""Distinguish an interrupt before a run has started from one after it."""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.errors import BeforeTheRun, Interrupted


class Interrupts:
    """Handle an interrupt in the block. Once the run has `begun`, the user is told that it continues, at
    `price` $/h. Before that, BeforeTheRun is raised with what `again` returns: the command that repeats the
    call.
    """

    begun = False
    run_id = ""
    price = 0.0

    def __init__(self, again: Callable[[], str] = str) -> None:
        self.again = again

    def __enter__(self) -> Interrupts:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not KeyboardInterrupt:
            return
        if not self.begun:
            raise BeforeTheRun(self.again()) from None
        run = self.run_id
        raise Interrupted(
            f"{run} continues on its machine, at ${self.price:.2f}/h.",
            f"orch logs -f {run}    # follows it; to download its results too: orch watch {run}; "
            f"to stop it: orch cancel {run}",
        ) from None
