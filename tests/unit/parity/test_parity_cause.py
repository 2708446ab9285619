"""What is suspected, and what is not accused."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from orchestrator import parity
from orchestrator.model import Verdict
from tests.unit.parity_runs import ENVIRONMENT, Run, Value, step

ROUNDED = {"activation_b": [3.0, 5.0 * (1 + 2.0**-23)]}
ROUNDED_GRADIENT = {"gradient_a_kernel": [0.5, -0.5, 1.0 + 2.0**-23]}


def environment(**changed: Any) -> dict[str, Any]:
    """The usual facts with section__name=value put in."""
    facts = copy.deepcopy(ENVIRONMENT)
    for key, value in changed.items():
        section, _, name = key.partition("__")
        if name:
            facts[section][name] = value
        else:
            facts[section] = value
    return facts


def suspect(tmp_path: Path, change: dict[str, list[float]], **facts: Any) -> Verdict:
    a = Run([step()]).write(tmp_path / "a")
    b = Run([step(**change)], environment=environment(**facts)).write(tmp_path / "b")
    return parity.compare(a, b)


@pytest.mark.parametrize(
    ("change", "facts", "said"),
    [
        (
            ROUNDED,
            {"environment__TF_ENABLE_ONEDNN_OPTS": "0"},
            "TF_ENABLE_ONEDNN_OPTS is not set in A and 0 in B",
        ),
        (ROUNDED, {"tensorflow__onednn": False}, "oneDNN: on in A, off in B"),
        (ROUNDED, {"cpu__flags": ["avx2"]}, "A alone has avx512f"),
        (ROUNDED, {"tensorflow__devices": ["CPU:0", "GPU:0"]}, "devices"),
        (ROUNDED_GRADIENT, {"cpu__count": 1}, "2 threads in A and 1 in B"),
        (ROUNDED_GRADIENT, {"tensorflow__intra_op_threads": 4}, "2 threads in A and 4 in B"),
        (
            ROUNDED_GRADIENT,
            {"tensorflow__deterministic_ops": True},
            "deterministic operations: off in A, on in B",
        ),
        (ROUNDED, {}, "summed in another order"),
        ({"activation_b": [3.0, 9.0]}, {}, "something inside the step that was not recorded"),
        ({"initial_a_kernel": [0.1, 0.2, 0.3]}, {}, "seed"),
        ({"batch_data_0": [7.0, 8.0, 9.0, 6.0], "initial_a_kernel": [0.1, 0.2, 0.3]}, {}, "seed"),
        ({"batch_data_0": [4.0, 3.0, 2.0, 1.0]}, {"cpu__count": 8}, "interleave depends"),
        ({"batch_data_0": [1.0, 2.0, 3.0, 9.0]}, {}, "some records have other content, in the same order"),
        ({"batch_data_0": [1.00001, 2.00001, 3.00001, 4.0]}, {}, "slightly different arithmetic"),
    ],
)
def test_the_cause_fits_stage_and_facts(
    tmp_path: Path, change: dict[str, list[float]], facts: dict[str, Any], said: str
) -> None:
    found = suspect(tmp_path, change, **facts)
    assert found.cause is not None and found.cause.startswith("Suspected: ") and said in found.cause
    assert not found.confirmed


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"modules": {"train.py": "b" * 64}}, "the code differs: train.py"),
        ({"argv": ["--epochs", "3"]}, "the arguments differ"),
        ({"optimizers": []}, "optimizer's settings differ"),
    ],
)
def test_another_job_is_never_equivalent(tmp_path: Path, facts: dict[str, Any], said: str) -> None:
    found = suspect(tmp_path, ROUNDED, **facts)
    assert found.verdict == "DIVERGENT" and found.cause is not None and said in found.cause


def test_other_paths_are_the_same_job(tmp_path: Path) -> None:
    a = Run([step()], environment=environment(argv=["--output", "/home/me/out"])).write(tmp_path / "a")
    b = Run([step(**ROUNDED)], environment=environment(argv=["--output", "/mnt/out"])).write(tmp_path / "b")
    found = parity.compare(a, b)
    assert found.verdict == "EQUIVALENT" and found.cause is not None and "paths" not in found.cause
    assert "the paths differ" in found.detail


def test_a_version_alone_is_not_accused(tmp_path: Path) -> None:
    newer = {"tensorflow": "2.22.0", "keras": "3.15.1"}
    found = suspect(tmp_path, ROUNDED, versions=newer)
    assert found.cause is not None and "2.22" not in found.cause
    assert (
        "tensorflow 2.21.0 in A and 2.22.0 in B" in found.detail
        and "alone explains no difference" in found.detail
    )


def test_differences_without_effect_accuse_nobody(tmp_path: Path) -> None:
    found = suspect(tmp_path, {}, cpu__count=64, environment__OMP_NUM_THREADS="1")
    assert (found.verdict, found.cause) == ("IDENTICAL", None)


def test_precision_points_to_the_policy(tmp_path: Path) -> None:
    half = [*step()]
    half[3] = Value("activation", "a", [1.0, 2.0, 4.0], "float16")
    a = Run([step()]).write(tmp_path / "a")
    b = Run([half], environment=environment(keras__policy="mixed_float16")).write(tmp_path / "b")
    found = parity.compare(a, b)
    assert found.cause is not None and "policy: float32 in A, mixed_float16 in B" in found.cause
