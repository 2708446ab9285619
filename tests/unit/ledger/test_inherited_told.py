"""Variables of the user's shell that a run gets: named once, and again where they change."""

from __future__ import annotations

import pytest

from orchestrator.ledger import Draft
from orchestrator.ledger.lease import LeasedRun
from orchestrator.session.session import inherited_lines


@pytest.mark.parametrize(
    ("before", "now", "names"),
    [
        ({}, {}, []),
        ({}, {"OMP_NUM_THREADS": "2"}, [": OMP_NUM_THREADS=2"]),
        ({"OMP_NUM_THREADS": "2"}, {"OMP_NUM_THREADS": "2"}, []),
        ({"OMP_NUM_THREADS": "2"}, {"OMP_NUM_THREADS": "4"}, [": OMP_NUM_THREADS=4"]),
        ({"OMP_NUM_THREADS": "2"}, {}, ["does not set now: OMP_NUM_THREADS"]),
    ],
)
def test_inherited_variables_are_told_once(
    before: dict[str, str], now: dict[str, str], names: list[str]
) -> None:
    last = LeasedRun("r1", 0.0, draft=Draft({"inherited": before}))
    said = list(inherited_lines(last.inherited, now))
    assert [line for line, name in zip(said, names, strict=True) if not line.endswith(name)] == []


def test_a_run_whose_stack_was_not_noted_inherited_nothing() -> None:
    assert LeasedRun("r1", 0.0).inherited == LeasedRun("r1", 0.0, draft=Draft()).inherited == {}
