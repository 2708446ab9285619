"""How a repeated run ended is said as a clause, whatever ended it."""

from __future__ import annotations

import pytest

from orchestrator.model.outcomes import ExitReason
from orchestrator.model.runs import Exit
from orchestrator.replay.ending import end_of_fork, end_of_job


@pytest.mark.parametrize(
    ("exit", "said"),
    [
        (Exit(3, None, ExitReason.FAILED, "The command ended with status 3."), end_of_fork(3, 0)),
        (Exit(None, 9, ExitReason.OUT_OF_MEMORY, ""), "it ended: out of memory"),
        (None, "the process that supervises it was lost"),
    ],
)
def test_one_clause(exit: Exit | None, said: str) -> None:
    assert end_of_job(exit) == said
