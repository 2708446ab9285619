"""`sweep`: every point trained once, whatever becomes of machines, and nothing left at the end."""

from __future__ import annotations

import csv
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from distributed import get_worker

import orchestrator as orch
from orchestrator.api import report, sweep_status
from orchestrator.errors import Fault, Interrupted, ProviderError, UsageError
from orchestrator.model.sweeps import Point, PointState
from orchestrator.plan import Plan
from orchestrator.providers.memory import Mishap
from orchestrator.sweep.machines import Machines
from orchestrator.sweep.schedule import schedule_here
from orchestrator.sweep.training import Done
from tests.unit import here_cloud
from tests.unit.sweep.rig import SCRIPT, Swept, Told, run_cli

pytestmark = pytest.mark.processes


@pytest.fixture
def swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Swept:
    return Swept(tmp_path / "p", here_cloud.cloud(tmp_path / "machines", monkeypatch, prepared=True))


def test_every_point_is_an_ordinary_run_with_its_parameters(swept: Swept) -> None:
    told: list[str] = []
    done = swept.sweep(machines=2, told=lambda _sweep, point: told.append(point.run_id))
    assert done.succeeded and not done.left and done.ended_at and not swept.cloud.alive()
    assert sorted(told) == sorted(point.run_id for point in done.points)
    assert swept.trained == {"0.1 1": 1, "0.1 2": 1, "0.01 1": 1, "0.01 2": 1}
    assert done.best is not None and done.best.params == {"lr": "0.01", "seed": "1"}
    for point in done.points:
        record = json.loads((swept.folder / f"runs/{point.run_id}/run.json").read_text())
        assert record["command"] == ["python", "train.py", point.params["lr"]]
        assert record["metrics"] == point.metrics
    kept = json.loads((Path(done.path) / "sweep.json").read_text())
    assert (kept["schema"], kept["best"], kept["metric"]) == ("orch.sweep/1", done.best.run_id, "loss")
    rows = list(csv.DictReader((Path(done.path) / "sweep.csv").open()))
    assert [(row["lr"], row["seed"], row["reason"]) for row in rows] == [
        (point.params["lr"], point.params["seed"], "completed") for point in done.points
    ]
    page = report(done.sweep, folder=swept.folder)
    assert page.path == Path(done.path) / "report.html" and "lr=0.01 seed=1 has the lowest" in page.text
    assert {run.run_id for run in orch.history(folder=swept.folder).runs} == {p.run_id for p in done.points}


def test_a_repeated_call_trains_nothing_and_rents_nothing(swept: Swept) -> None:
    first = swept.sweep(machines=2)
    made = len(swept.cloud._made)

    def asked(_plan: Plan) -> bool:
        raise AssertionError("nothing is to be approved")

    again = swept.sweep(machines=2, approve=asked)
    assert again.sweep == first.sweep and again.succeeded and len(swept.cloud._made) == made
    more = swept.sweep(matrix={"lr": ["0.1", "0.01"], "seed": [1, 2, 3]})  # a larger matrix: the rest of it
    assert more.succeeded and sum(swept.trained.values()) == 6
    (swept.folder / "train.py").write_text(f"{SCRIPT}print('other code')\n")
    other = swept.sweep(matrix={"lr": ["0.1"], "seed": [1]})
    assert other.points[0].run_id not in {p.run_id for p in more.points} and swept.trained["0.1 1"] == 2


def test_machines_that_are_taken_back_are_replaced_and_every_run_succeeds(swept: Swept) -> None:
    swept.write("retry: {interruption: 3}\n", TAKES="0.3")
    held = [swept.hold(2), swept.hold(5)]
    taken: list[str] = []

    def take_two() -> None:
        """Take back a machine that trains a point that waits, twice."""
        for hold in held:
            at = swept.trained_file.with_name(hold.name.replace("hold", "at"))
            while not (at.exists() and at.read_text()):
                time.sleep(0.05)
            where = at.read_text()
            machine = next(m for m in swept.cloud.alive() if where.startswith(str(swept.cloud.base(m.id))))
            taken.append(machine.id)
            swept.cloud.take_back(machine)
            hold.unlink()

    taker = threading.Thread(target=take_two)
    taker.start()
    done = swept.sweep(matrix={"lr": ["0.1", "0.2"], "seed": list(range(1, 7))}, machines=3)
    taker.join()
    assert done.succeeded and len(set(taken)) == 2 and not swept.cloud.alive() and not done.left
    assert len({point.run_id for point in done.points}) == 12
    attempts = [point.attempts for point in done.points]
    assert sum(attempts) == 14 and sum(swept.trained.values()) == 14  # the two that were lost, once more
    assert set(swept.trained) == {f"{p.params['lr']} {p.params['seed']}" for p in done.points}


def test_a_point_that_fails_leaves_the_others_and_is_tried_again_by_the_next_call(
    swept: Swept, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    swept.write(BAD="2")
    argv = ["sweep", "orch.yaml", "--matrix", "lr=0.1", "--matrix", "seed=1..3", "--machines", "2", "--yes"]
    assert run_cli(swept.folder, monkeypatch, *argv) == 6
    printed = capsys.readouterr().out
    assert "3 of 3 runs have ended, 1 failed" in printed and "lr=0.1 seed=2: tiny-" in printed
    assert not swept.cloud.alive()
    assert run_cli(swept.folder, monkeypatch, "sweep", "status", "--json") == 0
    status = json.loads(capsys.readouterr().out)
    assert (status["active"], [p["reason"] for p in status["points"]]) == (
        False,
        ["completed", "failed", "completed"],
    )
    assert status["points"][1]["error"]["exit_code"] == 6
    swept.trained_file.with_name("trained.mended").touch()
    assert run_cli(swept.folder, monkeypatch, *argv, "--json") == 0
    assert json.loads(capsys.readouterr().out)["points"][1]["attempts"] == 2
    assert swept.trained == {"0.1 1": 1, "0.1 2": 2, "0.1 3": 1}


def test_the_machines_that_can_be_had_do_it_all(swept: Swept) -> None:
    """Two of three are refused: the points of all go to the one that is there."""
    swept.cloud._quota_cpus = 2
    told = Told()
    done = swept.sweep(machines=3, progress=told)
    assert sum("gets no more runs of this sweep: " in line for line in told.lines) == 2
    assert done.succeeded and len(swept.cloud._made) == 1 and not swept.cloud.alive() and not done.left


def test_with_no_machine_the_reason_is_said_and_nothing_is_left(swept: Swept) -> None:
    swept.cloud._quota_cpus = 0
    with pytest.raises(ProviderError) as refused:
        swept.sweep(machines=2)
    assert refused.value.fault is Fault.QUOTA
    said, following = refused.value.exists or "", refused.value.next_command or ""
    assert said.startswith(
        "0 of 4 points have ended. No machine of the sweep is left. To continue: orch sweep "
    )
    assert following and not following.startswith("orch sweep"), "what the quota needs comes first"
    now, active = sweep_status(folder=swept.folder)
    assert not active and now.count(PointState.STOPPED) == 4 and not swept.trained


def test_a_machine_that_cannot_be_ended_is_named(swept: Swept) -> None:
    swept.cloud._script["delete"].extend([Mishap(Fault.AUTH)] * 20)
    done = swept.sweep(matrix={"lr": ["0.1"], "seed": [1]})
    assert done.succeeded and len(done.left) == 1 and "was left running, at $0.0" in done.left[0]
    swept.cloud._script["delete"].clear()
    assert swept.sweep(matrix={"lr": ["0.1"], "seed": [1]}).left == () and not swept.cloud.alive()


def test_limits_of_price(swept: Swept) -> None:
    with pytest.raises(UsageError, match=r"2 machines would cost \$0\.1/h together") as refused:
        swept.sweep(machines=2, max_price=0.09)
    assert "--machines 1" in (refused.value.next_command or "") and not swept.cloud._made
    seen: list[Plan] = []
    with pytest.raises(UsageError, match="Not approved"):
        swept.sweep(machines=2, approve=lambda plan: bool(seen.append(plan)))
    assert len(seen) == 1 and not swept.cloud._made


def test_a_machine_of_ones_own_approves_none_of_a_sweep(swept: Swept) -> None:
    """One of the same profile that is up already costs nothing more; those of the sweep do."""
    own = orch.up(swept.profile, folder=swept.folder, overrides=["train.params.lr=1"])
    told = Told()
    with pytest.raises(UsageError, match="Not approved"):
        swept.sweep(machines=2, approve=lambda plan: not plan.offers, progress=told)
    assert "2 machines to be created when needed, $0.1/h together, each:" in told.lines
    with pytest.raises(UsageError, match=r"2 machines would cost \$0\.1/h together"):
        swept.sweep(machines=2, max_price=0.09)
    assert [machine.id for machine in swept.cloud.alive()] == [own.machine]
    orch.down(own.lease, folder=swept.folder)


def test_a_budget_that_is_used_up_starts_no_run(
    swept: Swept, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done = swept.sweep(budget=1e-9)
    assert (done.count(PointState.ENDED), done.count(PointState.STOPPED)) == (1, 3)
    assert not done.succeeded and not swept.cloud.alive()
    made = len(swept.cloud._made)
    again = swept.sweep(budget=1e-9)  # what the first call cost counts
    assert again.count(PointState.ENDED) == 1 and len(swept.cloud._made) == made
    argv = [
        "sweep",
        "orch.yaml",
        "--matrix",
        "lr=0.1,0.01",
        "--matrix",
        "seed=1,2",
        "--budget",
        "1e-9",
        "--yes",
    ]
    assert run_cli(swept.folder, monkeypatch, *argv) == 4
    assert "The budget of $0.00 is used up; no further run is started." in capsys.readouterr().err


@pytest.mark.parametrize("refusal", ["approval", "quota"])
def test_the_command_that_is_suggested_has_every_option_that_was_typed(
    swept: Swept, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], refusal: str
) -> None:
    """Without its limits, a copied command would cost more than was wished."""
    swept.cloud._quota_cpus = 0
    typed = (
        "sweep orch.yaml --matrix lr=1e-4..1e-1 --matrix seed=1,2 --machines 2 --search optuna:3 "
        "--objective loss:min --max-price 3.0 --budget 2.5 --set resources.cpus=2"
    )
    yes = ["--yes"] if refusal == "quota" else []
    assert run_cli(swept.folder, monkeypatch, *typed.split(), *yes) == (4 if yes else 2)
    printed = capsys.readouterr().err
    assert f"orch {typed}" in printed or typed in " ".join(printed.split())


def test_an_interrupt_while_machines_are_ended_says_what_goes_on(
    swept: Swept, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> str | None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Machines, "end", interrupted)
    with pytest.raises(Interrupted, match=r"0 of 1 run and 1 machine continue, at \$0\.05/h"):
        swept.sweep(matrix={"lr": ["0.1"], "seed": [1]})
    monkeypatch.undo()


def test_a_metric_that_nobody_recorded_is_said(
    swept: Swept, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = [
        "sweep",
        "orch.yaml",
        "--matrix",
        "lr=0.1",
        "--matrix",
        "seed=1",
        "--objective",
        "auc:max",
        "--yes",
    ]
    assert run_cli(swept.folder, monkeypatch, *argv) == 0
    assert "No run recorded auc; there are: loss" in capsys.readouterr().out


def test_a_wrong_call_is_refused_before_anything_is_made(swept: Swept) -> None:
    with pytest.raises(UsageError, match=r"Did you mean --matrix lr=… instead of lrr\?"):
        swept.sweep(matrix={"lrr": ["0.1"]})
    with pytest.raises(UsageError, match="`machines` is 0; a sweep uses from 1 to 100"):
        swept.sweep(machines=0)
    with pytest.raises(UsageError, match="This project has no sweep"):
        sweep_status("none", folder=swept.folder)
    assert not swept.cloud._made and not (swept.folder / "runs").exists()


SEARCH: dict[str, Any] = {
    "matrix": {"lr": ["1e-4..1.0"], "seed": [1, 2]},
    "search": "optuna:6",
    "objective": "loss",
}


def test_a_search_chooses_each_point_once_and_an_interrupted_one_goes_on(swept: Swept) -> None:
    first = swept.sweep(**SEARCH, budget=1e-9)  # it is stopped after the first point
    assert (len(first.points), first.total, first.succeeded) == (1, 6, False)
    done = swept.sweep(**SEARCH, machines=2)
    assert done.sweep == first.sweep and done.succeeded and done.points[0] == first.points[0]
    assert len(done.points) == len(swept.trained) == sum(swept.trained.values()) == 6
    chosen = [float(point.params["lr"]) for point in done.points]
    assert all(1e-4 <= lr <= 1.0 for lr in chosen) and len(set(chosen)) == 6
    losses = [float(point.params["lr"]) + int(point.params["seed"]) for point in done.points]
    assert [point.metrics["loss"] for point in done.points] == losses
    assert done.best is not None and done.best.metrics["loss"] == min(losses)
    again = swept.sweep(**SEARCH)
    assert again.succeeded and again.points == done.points and sum(swept.trained.values()) == 6


def test_a_parameter_may_be_a_part_of_the_scripts_name(swept: Swept) -> None:
    swept.profile.write_text(swept.profile.read_text().replace("train.py {lr}", "{model}.py {lr}"))
    (swept.folder / "wide.py").write_text(SCRIPT)
    done = swept.sweep(matrix={"model": ["train", "wide"], "lr": ["0.1"], "seed": [1]})
    assert done.succeeded and swept.trained == {"0.1 1": 2}


def test_a_search_of_few_values_trains_each_once(swept: Swept) -> None:
    done = swept.sweep(matrix={"lr": ["0.1"], "seed": ["1..2"]}, search="optuna:5")
    assert done.succeeded and len(done.points) == 2 and set(swept.trained.values()) == {1}


def test_dask_samples_no_stacks_while_it_waits_for_machines(tmp_path: Path) -> None:
    """They would be shown on its status pages, which are not served; to take them is most of its work."""
    seen: list[dict[str, Any]] = []

    def train(number: int, point: Point) -> Done:
        seen.append(dict(get_worker().periodic_callbacks))
        return Done(number, point)

    with schedule_here(1, train, tmp_path) as given:
        assert [done.point.run_id for done in given.each([Point("a", {})], ())] == ["a"]
    (callbacks,) = seen
    assert "profile" not in callbacks and callbacks["tick"].callback_time >= 1000  # ms


@pytest.mark.parametrize(
    ("search", "lr", "said"),
    [
        ("optuna:0", "1..2", "is not optuna:N"),
        ("grid", "1..2", "is not optuna:N"),
        ("optuna:3", "2..1", r"lr=2\.\.1 is not a range of numbers"),
        ("optuna:3", "a..b", r"lr=a\.\.b is not a range of numbers"),
        ("optuna:3", "1..inf", r"lr=1\.\.inf is not a range of numbers"),
    ],
)
def test_a_search_that_cannot_be_is_refused_first(swept: Swept, search: str, lr: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        swept.sweep(matrix={"lr": [lr], "seed": [1]}, search=search)
    assert not swept.cloud._made
