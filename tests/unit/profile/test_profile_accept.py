"""The gate as it is written: what is taken, and what is refused with its place and its remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import ProfileError
from orchestrator.model.acceptance import Accept, Limit, Margin
from orchestrator.model.outcomes import Conclusion
from orchestrator.profile import load

BARE = "version: 1\nname: demo\ncloud: local\ntrain: {command: python train.py}\n"


def accept(folder: Path, text: str) -> Accept | None:
    path = folder / "p.yaml"
    path.write_text(BARE + text)
    return load(path, environ={"HOME": "/home/me"}).accept


def test_no_gate_by_default(tmp_path: Path) -> None:
    assert accept(tmp_path, "") is None
    assert accept(tmp_path, "accept:\n") is None
    assert accept(tmp_path, "accept: {}\n") == Accept()


@pytest.mark.parametrize(
    ("written", "limit"),
    [
        ('">= 0.95"', Limit(low=0.95)),
        ('">=.95"', Limit(low=0.95)),
        ('"> 0.95"', Limit(low=0.95, exclusive=True)),
        ('"<= 3e-1"', Limit(high=0.3)),
        ('"<0.3"', Limit(high=0.3, exclusive=True)),
        ("{min: 0.9}", Limit(low=0.9)),
        ("{max: 1}", Limit(high=1.0)),
        ("{min: 0.1, max: 0.9}", Limit(0.1, 0.9)),
    ],
)
def test_limits(tmp_path: Path, written: str, limit: Limit) -> None:
    found = accept(tmp_path, f"accept: {{metrics: {{custom: {written}}}}}\n")
    assert found and found.metrics == {"custom": limit}


def test_a_plain_number_takes_its_direction_from_a_known_name(tmp_path: Path) -> None:
    found = accept(tmp_path, "accept: {metrics: {val_accuracy: 0.9, val_loss: 0.3}}\n")
    assert found and found.metrics == {"val_accuracy": Limit(low=0.9), "val_loss": Limit(high=0.3)}


def test_margins_take_their_direction_from_the_limit_before_the_name(tmp_path: Path) -> None:
    text = 'accept: {metrics: {profit: ">= 1", loss: ">= 0"}, not_worse: {profit: 1, loss: 0.1, auc: 0}}\n'
    found = accept(tmp_path, text)
    assert found
    expected = {"profit": Margin(1.0, True), "loss": Margin(0.1, True), "auc": Margin(0.0, True)}
    assert found.not_worse == expected


def test_everything_else(tmp_path: Path) -> None:
    text = "accept: {name: fraud, parity: equivalent, model_check: true, resume_proof: true}\n"
    found = accept(tmp_path, text)
    assert found == Accept(
        name="fraud",
        parity=(Conclusion.IDENTICAL, Conclusion.EQUIVALENT),
        model_check=True,
        resume_proof=True,
    )
    strict = accept(tmp_path, "accept: {parity: IDENTICAL}\n")
    assert strict and strict.parity == (Conclusion.IDENTICAL,)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("accept: {metric: {accuracy: 0.9}}", "did you mean metrics"),
        ("accept: {metrics: {accuracy: high}}", 'a limit such as ">= 0.95"'),
        ("accept: {metrics: {custom: 0.9}}", 'write ">= 0.9" or "<= 0.9"'),
        ("accept: {metrics: {accuracy: {mim: 0.9}}}", "did you mean min"),
        ("accept: {metrics: {accuracy: {}}}", "expected min, max, or both"),
        ("accept: {metrics: {accuracy: {min: 0.9, max: 0.1}}}", "above max"),
        ("accept: {metrics: {accuracy: .nan}}", "a limit such as"),
        ("accept: {metrics: [accuracy]}", "a mapping of metrics"),
        ("accept: {not_worse: {accuracy: -0.1}}", "by how much it may be worse"),
        ("accept: {not_worse: {custom: 0.1}}", "which way is better?"),
        ("accept: {parity: divergent}", "identical"),
        ("accept: {name: ../x}", "expected a name"),
        ("accept: {model_check: sure}", "expected true or false"),
    ],
)
def test_refused_with_place_and_remedy(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ProfileError) as refused:
        accept(tmp_path, text + "\n")
    assert said in str(refused.value)
    assert "p.yaml:5:" in str(refused.value)
