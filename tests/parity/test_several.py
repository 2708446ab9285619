"""Scenarios of several causes at once, and of scripts that differ from themselves: each must be called so."""

from __future__ import annotations

import pytest

from tests.parity.conftest import Judge
from tests.parity.scenarios.model import Scenario
from tests.parity.scenarios.several import SCENARIOS

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.slug)
def test_it_is_called_what_it_is(judged: Judge, scenario: Scenario) -> None:
    assert judged(scenario).misses == ""
