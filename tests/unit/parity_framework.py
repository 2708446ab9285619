"""A framework of four weights: scripts that import it are recorded and repeated as those of TensorFlow are.

It observes itself with the real facts and the real list of opened files, so that whole comparisons with
confirmation take seconds. Its folder, the repository, must be on PYTHONPATH.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orchestrator.runtime.observe.facts import Facts
from orchestrator.runtime.observe.files import Files
from orchestrator.runtime.observe.settings import from_environment
from tests.unit.parity_runs import Run, step

_SETTINGS = from_environment(os.environ)
_FILES = Files(str(_SETTINGS.directory) if _SETTINGS else "/dev/null")
_FILES.listen()
_SEEDS: list[int] = []


def set_random_seed(seed: int) -> None:
    """Seed Python's generator, and note the number as Keras does."""
    random.seed(seed)
    _SEEDS.append(seed)


def train(batch: Sequence[float], weights: Sequence[float] = (0.5, 0.25, -1.0)) -> None:
    """One step on four numbers, from three weights."""
    if _SETTINGS is None:
        return
    data = [float(value) for value in batch][:4]
    total = sum(value * (place + 1) for place, value in enumerate(data))
    moved = [weight + total / 1000 for weight in weights]
    changed = {
        "batch_data_0": data,
        "initial_a_kernel": list(weights),
        "activation_a": moved,
        "loss_loss": [total],
        "gradient_a_kernel": moved,
        "update_a_kernel": moved,
    }
    made = step(**changed)
    Run([made], requested=1, environment=_facts()).write(Path(_SETTINGS.directory).parent)
    if _SETTINGS.stop:
        sys.exit(0)


def _facts() -> dict[str, Any]:
    found = Facts(None, _FILES).gather()
    ours = ("orchestrator/", "orch_runtime/", "tests/", "sitecustomize")
    modules = {name: digest for name, digest in found["modules"].items() if not name.startswith(ours)}
    states = {"keras_seed": _SEEDS[-1] if _SEEDS else None}
    return {"v": 1, **found, "modules": modules, "rng": states, "keras": {"backend": "none"}}
