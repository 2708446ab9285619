"""Scenarios of files and batches: each must be called what it is."""

from __future__ import annotations

import pytest

from tests.parity.conftest import Judge
from tests.parity.scenarios.batches import SCENARIOS
from tests.parity.scenarios.model import Scenario

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.slug)
def test_it_is_called_what_it_is(judged: Judge, scenario: Scenario) -> None:
    assert judged(scenario).misses == ""
