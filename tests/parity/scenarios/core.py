"""Of every stage and every verdict one or two: what the suite runs each time."""

from __future__ import annotations

from dataclasses import replace

from tests.parity.scenarios import batches, causes, controls, refused, several, steps, styles
from tests.parity.scenarios.model import Scenario

_PLANTED = {
    scenario.name: scenario
    for part in (batches, steps, several, styles, causes, refused)
    for scenario in part.SCENARIOS
}
_INNOCENT = {scenario.name: scenario for scenario in controls.SCENARIOS}

_RECORDED = (
    "one pixel of one shard",
    "another initializer",
    "another epsilon of normalisation",
    "a sum for a mean",
    "eager: gradients that are stopped",
    "another schedule",
    "another metric",
    "fewer steps",
    "a run that trains nothing",
)
"""Told by the recordings alone."""

_REPEATED = ("hours by the local clock", "an augmentation without a seed")
"""Confirmed by running again."""

_CONTROLS = (
    "the same twice",
    "a loader in double precision",
    "started from another folder",
)

SCENARIOS: tuple[Scenario, ...] = (
    *(replace(_PLANTED[name], confirm=False) for name in _RECORDED),
    *(_PLANTED[name] for name in _REPEATED),
    *(replace(_INNOCENT[name], confirm=False) for name in _CONTROLS),
)
