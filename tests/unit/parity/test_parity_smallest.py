"""The fewest of several things that are enough."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.parity.smallest import smallest_sufficient


@given(st.integers(1, 40), st.data())
def test_exactly_the_guilty_are_left_in_their_order(count: int, data: st.DataObject) -> None:
    guilty = data.draw(st.sets(st.integers(0, count - 1), min_size=1))
    found = smallest_sufficient(range(count), lambda some: guilty <= set(some))
    assert found == tuple(sorted(guilty))


@pytest.mark.parametrize("guilty", [0, 499, 737, 999])
def test_one_guilty_file_among_a_thousand_costs_about_twenty_runs(guilty: int) -> None:
    asked: list[Sequence[int]] = []

    def enough(some: Sequence[int]) -> bool:
        asked.append(some)
        return guilty in some

    assert smallest_sufficient(range(1000), enough) == (guilty,)
    assert len(asked) <= 20


def test_nothing_can_be_left_out_of_either_of_two_answers() -> None:
    found = smallest_sufficient("abcdef", lambda some: {"a", "e"} <= set(some) or {"b", "f"} <= set(some))
    assert set(found) in ({"a", "e"}, {"b", "f"})


def test_where_no_time_is_left_all_are_kept() -> None:
    assert smallest_sufficient("abc", lambda _some: False) == ("a", "b", "c")
