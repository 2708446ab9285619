"""Distances between recorded tensors: properties, and files that are not what they should be."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.parity.numbers import Gap, measure, read_npy
from orchestrator.parity.wording import gap_words
from tests.unit.parity_runs import npy

floats32 = st.floats(width=32, allow_nan=False, allow_infinity=False)


def bits(numbers: list[float]) -> list[int]:
    return [int(b) for b in struct.unpack(f"<{len(numbers)}I", struct.pack(f"<{len(numbers)}f", *numbers))]


def gap(a: list[float], b: list[float]) -> Gap:
    return measure(bits(a), bits(b), "float32", len(a))


@given(st.lists(floats32, min_size=1))
def test_a_tensor_is_no_distance_from_itself(numbers: list[float]) -> None:
    found = gap(numbers, numbers)
    assert (found.differing, found.relative, found.ulps, found.largest) == (0, 0.0, 0, 0.0)


@given(st.lists(st.tuples(floats32, floats32), min_size=1))
def test_distance_has_no_direction(pairs: list[tuple[float, float]]) -> None:
    a, b = [x for x, _ in pairs], [y for _, y in pairs]
    there, back = gap(a, b), gap(b, a)
    assert there == back
    assert there.relative is not None and 0.0 <= there.relative <= 2.0 + 1e-12
    assert there.differing == sum(x != y for x, y in zip(bits(a), bits(b), strict=True))


@given(st.integers(0, 0x7F7FFFFE), st.booleans())
def test_neighbours_are_one_unit_apart(pattern: int, negative: bool) -> None:
    sign = 0x80000000 if negative else 0
    assert measure([pattern | sign], [pattern + 1 | sign], "float32", 1).ulps == 1


@given(st.integers(0, 0x7F7F), st.integers(0, 0x7F7F))
def test_bfloat16_counts_its_own_units(a: int, b: int) -> None:
    assert measure([a], [b], "bfloat16", 1).ulps == abs(a - b)


def test_the_two_zeros_are_no_units_apart_but_differ() -> None:
    found = gap([0.0], [-0.0])
    assert (found.differing, found.ulps, found.relative) == (1, 0, 0.0)


def test_relative_difference_is_that_of_norms() -> None:
    found = gap([3.0, 4.0], [3.0, 4.5])
    assert found.relative == pytest.approx(0.5 / math.sqrt(3.0**2 + 4.5**2))
    assert found.largest == 0.5


def test_nan_on_one_side_is_no_number() -> None:
    found = gap([1.0, math.nan], [1.0, 2.0])
    assert (found.differing, found.relative, found.largest) == (1, None, None)


def test_integers_are_signed_and_have_no_units() -> None:
    minus_one, one = (1 << 64) - 1, 1
    found = measure([minus_one], [one], "int64", 1)
    assert (found.largest, found.ulps) == (2.0, None)


@given(st.lists(floats32, min_size=1, max_size=40))
def test_a_written_tensor_reads_back(tmp_path_factory: pytest.TempPathFactory, numbers: list[float]) -> None:
    path = tmp_path_factory.mktemp("npy") / "t.npy"
    path.write_bytes(npy("<f4", len(numbers), struct.pack(f"<{len(numbers)}f", *numbers)))
    assert list(read_npy(path)) == bits(numbers)


@pytest.mark.parametrize(
    "content",
    [b"", b"not a tensor", npy("<f4", 3, b"\0" * 8), npy(">f4", 1, b"\0" * 4), npy("<V3", 1, b"\0" * 3)],
    ids=["empty", "text", "cut off", "big-endian", "no number"],
)
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "t.npy"
    path.write_bytes(content)
    with pytest.raises((ValueError, SyntaxError, struct.error)):
        read_npy(path)


def test_what_is_no_number_is_counted_on_each_side() -> None:
    found = measure(bits([1.0, math.nan, math.inf]), bits([1.0, 2.0, math.nan]), "float32", 3)
    assert gap_words(found).endswith(", 1 of A and 1 of B are NaN")
    found = measure(bits([1.0, 2.0]), bits([1.0, -math.nan]), "float32", 2)
    assert gap_words(found).endswith(", none of A and 1 of B is NaN")
    assert gap_words(measure([0x7C00, 0], [0x7C01, 0], "float16", 2)).endswith("none of A and 1 of B is NaN")


def test_single_numbers_are_told() -> None:
    assert gap_words(gap([0.01], [0.02])) == "0.01 in A and 0.02 in B"
    assert "ULP" in gap_words(gap([1.0], [1.0 + 2.0**-23])), "which look alike"
