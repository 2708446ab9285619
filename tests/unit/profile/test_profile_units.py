"""Units are exact, explicit, and the same in the loader and in the published schema."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.model import Bound
from orchestrator.profile import units

ANY = 1 << 62


def size(text: object) -> int:
    return units.parse_size(text, low=0, high=ANY)


def duration(text: object) -> int:
    return units.parse_duration(text, low=0, high=ANY)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("4 GiB", 4 << 30),
        ("4GiB", 4 << 30),
        ("4 GB", 4 * 10**9),
        ("1.5 KiB", 1536),
        ("0.001 MB", 1000),
        ("7 B", 7),
        ("2 TiB", 2 << 40),
        ("123456789 KB", 123456789000),
    ],
)
def test_sizes(text: str, number: int) -> None:
    assert size(text) == number
    assert units.parse_size_bound(text + "+", low=0, high=ANY) == Bound(number, True)


@pytest.mark.parametrize("text", ["0.1 KiB", "1.5 B", "0.3333 KB"])
def test_no_part_of_a_byte(text: str) -> None:
    with pytest.raises(ValueError, match="not a whole number of bytes"):
        size(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("45s", 45), ("90m", 5400), ("2h30m", 9000), ("1d", 86400), ("1d 2h 3m 4s", 93784), ("90s", 90)],
)
def test_durations(text: str, seconds: int) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "90 m", "30m2h", "1h1h", "-1h", "1w", "1H", "٣h", "1h\n"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="expected a duration"):
        duration(text)


@given(st.integers(0, 10**9))
def test_a_duration_reads_back(seconds: int) -> None:
    assert duration(units.show_duration(seconds)) == seconds


@given(st.integers(0, 1 << 20), st.sampled_from(sorted(units.UNITS)))
def test_a_size_is_its_number_times_its_unit(number: int, unit: str) -> None:
    assert size(f"{number} {unit}") == number * units.UNITS[unit]


ODD = st.text(alphabet="0123456789 .+:-_dhmsBKMGTibe", max_size=14)


@pytest.mark.parametrize(
    ("pattern", "parse"),
    [
        (units.SIZE_PATTERN, size),
        (units.SIZE_BOUND_PATTERN, lambda text: units.parse_size_bound(text, low=0, high=ANY)),
        (units.COUNT_BOUND_PATTERN, lambda text: units.parse_count_bound(text, high=10**6)),
        (units.DURATION_PATTERN, duration),
    ],
    ids=["size", "size or more", "count or more", "duration"],
)
def test_the_schema_and_the_loader_agree(pattern: str, parse: Callable[[object], object]) -> None:
    """What the schema's pattern takes, the loader takes, but for its range; and nothing else."""

    @given(st.one_of(st.from_regex(pattern, fullmatch=True).map(str.rstrip), ODD))
    def agree(text: str) -> None:
        try:
            parse(text)
            taken = True
        except ValueError as error:
            taken = "out of range" in str(error) or "whole number of bytes" in str(error)
        assert taken == bool(re.search(pattern, text))

    agree()


@given(st.one_of(st.text(max_size=30), st.integers(), st.floats(), st.booleans(), st.none()))
def test_nothing_but_a_value_error_with_a_sentence(value: object) -> None:
    for parse in (size, duration, lambda text: units.parse_count_bound(text, high=9)):
        try:
            parse(value)
        except ValueError as error:
            assert str(error)


@pytest.mark.parametrize(
    ("text", "rate"), [("10 Gbps", 10.0), ("2.5Gbps", 2.5), ("12.5 Gbps+", 12.5), ("100 Gbps +", 100.0)]
)
def test_a_rate_is_a_minimum(text: str, rate: float) -> None:
    assert units.parse_least_rate(text, high=1000) == rate


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (10, "has no unit; write 10 Gbps"),
        ("10", "expected a rate such as 10 Gbps"),
        ("10 Gbit", "expected a rate"),
        ("0 Gbps", "out of range"),
        ("2000 Gbps", "up to 1000 Gbps"),
        (True, "expected a rate"),
    ],
)
def test_a_rate_that_is_none_is_refused(value: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        units.parse_least_rate(value, high=1000)


def test_a_least_size_needs_no_plus() -> None:
    assert units.parse_least_size("100 GB", low=1, high=10**13) == 10**11
    assert units.parse_least_size("100 GB+", low=1, high=10**13) == 10**11


@pytest.mark.parametrize(
    ("value", "meant"), [(4, "4 GiB"), (4096, "4096 MiB"), (4_000_000_000, "4000000000 B")]
)
def test_a_bare_number_is_asked_for_with_the_likely_unit(value: int, meant: str) -> None:
    with pytest.raises(ValueError, match=f"has no unit; write {meant}$"):
        units.parse_size_bound(value, low=1, high=2**60)
