"""Makes the test of a theme's scenarios."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.parity.conftest import Judge
from tests.parity.scenarios.model import Scenario

MARKS = (pytest.mark.tensorflow, pytest.mark.slow, pytest.mark.timeout(900))


def called_what_it_is(scenarios: Sequence[Scenario]) -> Callable[[Judge, Scenario], None]:
    """A test, once for each of `scenarios`: the verdict is what is expected of it."""

    @pytest.mark.parametrize("scenario", [_parameter(scenario) for scenario in scenarios])
    def test(judged: Judge, scenario: Scenario) -> None:
        assert judged(scenario).misses == ""

    return test


def _parameter(scenario: Scenario) -> object:
    known = [pytest.mark.xfail(strict=True, reason=scenario.missed)] if scenario.missed else []
    return pytest.param(scenario, id=scenario.slug, marks=[*MARKS, *known])
