"""Lines through measured steps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.sizing.fit import fit

SIZES = st.lists(st.integers(1, 4096), min_size=2, max_size=5, unique=True)
BYTES = st.floats(0, 1e10)
PER_EXAMPLE = st.floats(1, 1e7)


@given(sizes=SIZES, intercept=BYTES, slope=PER_EXAMPLE, other=st.integers(1, 10000))
def test_what_lies_on_a_line_is_found_again_at_any_size(
    sizes: list[int], intercept: float, slope: float, other: int
) -> None:
    line = fit({size: [intercept + slope * size] * 3 for size in sizes})
    largest = max(*sizes, other)
    assert line.at(other).value == pytest.approx(
        intercept + slope * other, abs=1e-6 * (intercept + slope * largest)
    )


@given(
    samples=st.dictionaries(
        st.integers(1, 1000), st.lists(st.floats(0, 1e11), min_size=1, max_size=6), min_size=1, max_size=5
    ),
    one=st.integers(1, 5000),
    other=st.integers(1, 5000),
)
def test_more_examples_never_need_less_and_the_interval_holds_the_value(
    samples: dict[int, list[float]], one: int, other: int
) -> None:
    line = fit(samples)
    few, many = line.at(min(one, other)), line.at(max(one, other))
    assert 0 <= few.value <= many.value * (1 + 1e-9)
    for found in (few, many, line.slope, line.intercept):
        assert 0 <= found.low <= found.value <= found.high


@given(factor=st.floats(0.01, 100), other=st.integers(1, 4096))
def test_it_does_not_matter_in_which_unit_bytes_are_counted(factor: float, other: int) -> None:
    samples = {16: [1e7, 1.1e7], 32: [1.7e7, 1.6e7], 64: [3e7, 2.9e7]}
    line = fit(samples)
    scaled = fit({size: [value * factor for value in values] for size, values in samples.items()})
    assert scaled.at(other).value == pytest.approx(line.at(other).value * factor)
    assert scaled.spread == pytest.approx(line.spread)


def test_steps_that_differ_make_the_interval_wider_and_far_sizes_wider_still() -> None:
    calm = fit({16: [100.0] * 8, 32: [200.0] * 8, 64: [400.0] * 8})
    noisy = fit({16: [95.0, 105.0] * 4, 32: [190.0, 210.0] * 4, 64: [380.0, 420.0] * 4})
    assert noisy.at(48).high - noisy.at(48).low > 10 * (calm.at(48).high - calm.at(48).low)
    near, far = noisy.at(48), noisy.at(512)
    assert (far.high - far.low) / far.value > (near.high - near.low) / near.value
    assert noisy.at(64).value == pytest.approx(420), "the highest of many steps, not their middle"


def test_a_clear_bend_is_followed_beyond_it_and_noise_is_none() -> None:
    bent = fit({16: [1000.0] * 4, 32: [1000.0] * 4, 64: [2000.0] * 4})
    assert bent.bend is not None
    assert bent.at(128).value == pytest.approx(4000)
    noisy = fit({16: [1000.0, 1400.0], 32: [1700.0, 2300.0], 64: [4100.0, 3900.0]})
    assert noisy.bend is None


def test_of_one_size_everything_is_taken_to_grow() -> None:
    line = fit({32: [640.0, 640.0]})
    assert line.at(64).value == pytest.approx(1280)
    assert line.intercept.value == 0


def test_nothing_measured_is_no_line() -> None:
    with pytest.raises(ValueError, match="nothing was measured"):
        fit({16: []})
