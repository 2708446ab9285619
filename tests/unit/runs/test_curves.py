"""Curves of a training, from what it printed and from the files that it left."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.model import Artifact
from orchestrator.runs import collect
from orchestrator.runs.curves import curves_of, curves_of_text
from tests.unit.report.page.runs import record

SAME = {"loss": [1.5, 0.5], "acc": [0.5, 0.9]}


def found(text: str) -> dict[str, tuple[str, list[float], list[float]]]:
    return {curve.name: (curve.axis, curve.xs, curve.ys) for curve in curves_of_text(text)}


@pytest.mark.parametrize(
    "text",
    [
        "Epoch 1/2\n4/4 - 44ms/step - acc: 0.5 - loss: 1.5\nEpoch 2/2\n4/4 - 1s - acc: 0.9 - loss: 0.5\n",
        "Epoch 1/2\n\r1/2 [==>..] - acc: 0.1 - loss: 9\r2/2 [====] - acc: 0.5 - loss: 1.5\n"
        "Epoch 2/2\n\r2/2 [====] - acc: 0.9 - loss: 0.5\n",
        "epoch 1 loss 1.5 acc 0.5\nepoch 2 loss 0.5 acc 0.9\n",
        "[epoch=1] loss=1.5, acc=0.5\n[epoch=2] loss=0.5, acc=0.9\n",
        "{'loss': 1.5, 'acc': 0.5, 'epoch': 1.0}\n{'loss': 0.5, 'acc': 0.9, 'epoch': 2.0}\n",
        '{"epoch": 1, "loss": 1.5, "acc": 0.5}\n{"epoch": 2, "loss": 0.5, "acc": 0.9}\n',
        "12:30:15 INFO Epoch 1: loss: 1.5 acc: 0.5\n12:31:15 INFO Epoch 2: loss: 0.5 acc: 0.9\n",
    ],
    ids=["keras", "keras-bar", "bare", "equals", "dict", "json", "logger"],
)
def test_what_trainings_print(text: str) -> None:
    told = found(text)
    assert {name: told[name] for name in SAME} == {name: ("epoch", [1, 2], ys) for name, ys in SAME.items()}


def test_an_evaluation_after_the_last_epoch_is_no_point_of_it() -> None:
    text = "Epoch 1/2\n4/4 - loss: 2.0\nEpoch 2/2\n4/4 - loss: 1.0\n3/3 - loss: 7.0\nTest loss: 7.0\n"
    assert found(text)["loss"] == ("epoch", [1, 2], [2.0, 1.0])


def test_a_loss_that_is_no_number_breaks_the_curve() -> None:
    ys = found("epoch 1 loss: 1.0\nepoch 2 loss: nan\nepoch 3 loss: 2.0\n")["loss"][2]
    assert [y == y for y in ys] == [True, False, True]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("training.log", "epoch,acc,loss\n1,0.5,1.5\n2,0.9,0.5\n"),
        ("history.csv", "epoch,acc,loss\n1,0.5,1.5\n2,0.9,0.5\n"),
        (
            "metrics.jsonl",
            '{"epoch": 1, "acc": 0.5, "loss": 1.5}\ntorn {\n{"epoch": 2, "acc": 0.9, "loss": 0.5}\n',
        ),
        ("history.json", json.dumps(SAME)),
    ],
)
def test_files_of_metrics_come_before_what_was_printed(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    (tmp_path / "output.log").write_text("epoch 1 loss: 8\nepoch 2 loss: 9\n")
    told = curves_of(tmp_path, [{"path": name, "bytes": len(text)}], tmp_path / "output.log")
    assert {curve.name: curve.ys for curve in told} == SAME


def test_a_path_that_leaves_the_run_and_a_link_are_not_read(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (tmp_path / "history.csv").write_text("epoch,loss\n1,1\n2,2\n")
    (run / "history.csv").symlink_to(tmp_path / "history.csv")
    paths = [{"path": name, "bytes": 10} for name in ("../history.csv", "history.csv")]
    assert curves_of(run, paths, run / "output.log") == ()  # type: ignore[arg-type]


def test_a_long_training_is_thinned() -> None:
    told = curves_of_text("".join(f"step {n} loss: {n}\n" for n in range(9_000)))
    assert len(told[0].xs) <= 2_001
    assert told[0].xs[-1] == 8_999


def artifact(folder: Path, name: str, text: str) -> Artifact:
    (folder / name).write_text(text)
    return {"path": name, "sha256": "0" * 64, "bytes": len(text)}


def test_without_a_file_of_metrics_the_last_row_over_time_counts(tmp_path: Path) -> None:
    names = "epoch,acc,loss,time_distributed_loss,epoch_time,score_per_s,gpu_rate"
    text = f"{names}\n0,0.5,1.5,3,9,1,1\n1,0.9,0.5,2,8,2,2\n"
    over_time = artifact(tmp_path, "log.csv", text)
    made = record(path=str(tmp_path), artifacts=[over_time])
    logged = {"acc": 0.9, "loss": 0.5, "time_distributed_loss": 2.0}
    assert collect.metrics(made) == logged
    own = artifact(tmp_path, "metrics.json", '{"acc": 0.7}')
    assert collect.metrics(replace(made, artifacts=[over_time, own])) == {"acc": 0.7}
    nothing = replace(made, artifacts=[])
    assert collect.metrics(nothing) == {}
    (tmp_path / "output.log").write_text(
        'step 1 loss: 3\n{"acc": 0.8, "theta": 2, "seconds": 3.1, "name": "x", "ok": true}\n\n'
    )
    assert collect.metrics(nothing) == {"acc": 0.8, "theta": 2.0}
    assert collect.metrics(made) == logged
