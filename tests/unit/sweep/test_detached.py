"""`sweep --detach`: the points wait on their machines, and a later call collects each once."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.api import sweep_status
from orchestrator.errors import HostError, Interrupted, UsageError
from orchestrator.model.sweeps import Point, Sweep
from orchestrator.profile import load
from orchestrator.sweep.queueing import Queueing, shared
from orchestrator.sweep.training import Done
from orchestrator.training import start
from tests.unit import here_cloud
from tests.unit.job_runs import until
from tests.unit.sweep.rig import Swept, Told, run_cli

pytestmark = pytest.mark.processes

MATRIX = {"lr": ["0.1"], "seed": [1, 2, 3, 4, 5]}


@pytest.fixture
def swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Swept]:
    made = Swept(tmp_path / "p", here_cloud.cloud(tmp_path / "machines", monkeypatch, prepared=True))
    yield made
    for machine in made.cloud.alive():
        made.cloud.take_back(machine)


def states(sweep: Sweep) -> list[str]:
    return [str(point.state) for point in sweep.points]


def leases(sweep: Sweep) -> list[str | None]:
    return [point.lease for point in sweep.points]


def all_ended(swept: Swept) -> bool:
    """Ask the machines, as `orch sweep status` does."""
    return not sweep_status(folder=swept.folder)[0].going_on


def detach(swept: Swept, **options: Any) -> Sweep:
    return swept.sweep(**{"matrix": MATRIX, "machines": 2, "detach": True, **options})


def test_points_are_queued_round_robin_and_train_without_a_client(swept: Swept) -> None:
    held = [swept.hold(1), swept.hold(2)]
    first = detach(swept)
    assert (first.detached, first.ended_at, first.failed, len(first.going_on)) == (True, None, (), 5)
    one, two = leases(first)[:2]
    assert one != two and leases(first) == [one, two, one, two, one]
    now, active = sweep_status(folder=swept.folder)
    assert (states(now), active) == (["running", "running", "queued", "queued", "queued"], False)
    assert set(swept.trained) == {"0.1 1", "0.1 2"}
    for each in held:
        each.unlink()
    until(lambda: all_ended(swept), 120)
    assert set(swept.trained.values()) == {1} and len(swept.trained) == 5
    assert not list(swept.folder.glob("runs/*/run.json")), "nobody was there to collect"
    done = swept.sweep(matrix=MATRIX, machines=2)
    assert done.succeeded and not done.left and not swept.cloud.alive() and not done.detached
    assert [point.attempts for point in done.points] == [1] * 5
    assert set(swept.trained.values()) == {1} and len(swept.trained) == 5
    assert [point.metrics["loss"] for point in done.points] == [0.1 + seed for seed in range(1, 6)]


def test_a_queued_run_starts_when_its_job_does(swept: Swept) -> None:
    swept.write(TAKES="2")
    detach(swept, matrix={"lr": ["0.1"], "seed": [1, 2]}, machines=1)
    until(lambda: all_ended(swept), 120)
    done = swept.sweep(matrix={"lr": ["0.1"], "seed": [1, 2]})
    records = [json.loads((swept.folder / f"runs/{p.run_id}/run.json").read_text()) for p in done.points]
    (first,), (second,) = [record["attempts"] for record in records]
    assert second["started_at"] >= first["ended_at"] - 0.1
    for record, point in zip(records, done.points, strict=True):
        assert point.seconds == pytest.approx(record["timings"]["train_s"], abs=0.01)


def test_a_repeated_call_collects_what_has_ended_and_starts_what_is_missing(swept: Swept) -> None:
    held = swept.hold(2)
    told: list[str] = []
    first = detach(swept, matrix={"lr": ["0.1"], "seed": [1, 2, 3]}, machines=1)
    again = detach(swept, matrix={"lr": ["0.1"], "seed": [1, 2, 3]}, machines=1)
    assert leases(again) == leases(first) and len(again.going_on) in (2, 3)
    until(lambda: "0.1 2" in swept.trained, 60)
    more = {"lr": ["0.1"], "seed": [1, 2, 3, 4]}
    third = detach(swept, matrix=more, machines=1, told=lambda _, point: told.append(point.run_id))
    assert states(third) == ["ended", "running", "queued", "queued"]
    assert third.points[0].succeeded and set(told) <= {third.points[0].run_id}
    held.unlink()
    until(lambda: all_ended(swept), 120)
    last = detach(swept, matrix=more, machines=1)
    assert last.succeeded and last.ended_at and not swept.cloud.alive()
    assert set(swept.trained.values()) == {1} and len(swept.trained) == 4


def test_an_interrupted_queueing_is_continued_and_no_point_is_trained_twice(
    swept: Swept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before and after the machine was asked to start the second one."""
    began, asked = start.jobs.start, [0]

    def killed(*given: Any, **options: Any) -> Any:
        asked[0] += 1
        if asked[0] == 2:
            raise KeyboardInterrupt
        answer = began(*given, **options)
        if asked[0] == 4:
            raise KeyboardInterrupt
        return answer

    held = swept.hold(1)
    with monkeypatch.context() as patched:
        patched.setattr(start.jobs, "start", killed)
        patched.setattr(Queueing, "_in_threads", _in_this_thread)
        for _ in range(2):
            with pytest.raises(Interrupted, match="1 machine continue") as told:
                detach(swept, machines=1)
            assert "--detach" in (told.value.next_command or "")
    whole = detach(swept, machines=1)
    assert states(whole) == ["running", "queued", "queued", "queued", "queued"]
    held.unlink()
    until(lambda: all_ended(swept), 120)
    done = swept.sweep(matrix=MATRIX)
    assert done.succeeded and set(swept.trained.values()) == {1} and len(swept.trained) == 5


def _in_this_thread(self: Queueing, shares: dict[int, list[Point]]) -> Iterator[Done]:
    for number, share in shares.items():
        for point in share:
            yield self._train(number, point)


def test_a_failed_point_leaves_the_others_and_is_queued_again_by_the_next_call(swept: Swept) -> None:
    matrix = {"lr": ["0.1"], "seed": [1, 2, 3]}
    swept.write(BAD="2")
    detach(swept, matrix=matrix, machines=1)
    until(lambda: all_ended(swept), 120)
    second = detach(swept, matrix=matrix, machines=1)
    assert [point.reason for point in second.points] == ["completed", "failed", "completed"]
    assert second.ended_at and not swept.cloud.alive()
    swept.trained_file.with_name("trained.mended").touch()
    third = detach(swept, matrix=matrix, machines=1)
    assert states(third) == ["ended", "running", "ended"]
    until(lambda: all_ended(swept), 120)
    assert detach(swept, matrix=matrix, machines=1).succeeded
    assert swept.trained == {"0.1 1": 1, "0.1 2": 2, "0.1 3": 1}


def test_retry_of_the_profile_queues_a_failed_point_again_when_it_is_collected(swept: Swept) -> None:
    swept.write("retry: {error: 1}\n", BAD="1")
    matrix = {"lr": ["0.1"], "seed": [1]}
    detach(swept, matrix=matrix)
    until(lambda: all_ended(swept), 120)
    swept.trained_file.with_name("trained.mended").touch()
    assert states(detach(swept, matrix=matrix)) == ["running"]
    done = swept.sweep(matrix=matrix)
    assert done.succeeded and done.points[0].attempts == 2


def test_a_machine_that_is_lost_with_its_queue_is_replaced_by_the_same_command(swept: Swept) -> None:
    held = swept.hold(1)
    first = detach(swept)
    lost = swept.cloud.alive()[0]
    until(lambda: swept.trained["0.1 1"], 60)
    swept.cloud.take_back(lost)
    held.unlink()
    done = swept.sweep(matrix=MATRIX, machines=2)
    assert done.succeeded and not done.left and not swept.cloud.alive()
    assert len(swept.trained) == 5 and max(swept.trained.values()) <= 2
    assert len(set(leases(first))) == 2


def test_a_machine_that_cannot_be_had_leaves_its_points_to_the_other(swept: Swept) -> None:
    swept.cloud._quota_cpus = 2
    told = Told()
    first = detach(swept, progress=told)
    assert sum("gets no more runs of this sweep: " in line for line in told.lines) == 1
    assert len(set(leases(first))) == 1 and len(first.going_on) == 5
    done = swept.sweep(matrix=MATRIX, machines=2)
    assert done.succeeded and set(swept.trained.values()) == {1}


def test_a_queued_point_can_be_cancelled_and_is_told_as_queued(
    swept: Swept, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    held = swept.hold(1)
    argv = ["sweep", "orch.yaml", "--matrix", "lr=0.1", "--matrix", "seed=1..3", "--yes"]
    assert run_cli(swept.folder, monkeypatch, *argv, "--detach", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert [point["state"] for point in told["points"]] == ["running", "queued", "queued"]
    assert told["next_command"] == "orch sweep orch.yaml --matrix lr=0.1 --matrix seed=1,2,3 --machines 1"
    ids = [point["run_id"] for point in told["points"]]
    for verb in (["runs"], ["status", "--live"], ["sweep", "status"]):
        assert run_cli(swept.folder, monkeypatch, *verb) == 0
        lines = capsys.readouterr().out.splitlines()
        assert all(any(name in line and "queued" in line for line in lines) for name in ids[1:]), lines
    assert run_cli(swept.folder, monkeypatch, "logs", ids[1]) == 0
    assert f"{ids[1]} is queued: it begins when" in capsys.readouterr().err
    assert run_cli(swept.folder, monkeypatch, "pull", ids[1]) != 0
    assert f"{ids[1]} is still queued" in capsys.readouterr().err
    assert run_cli(swept.folder, monkeypatch, "cancel", ids[1]) == 0
    assert f"Cancelled {ids[1]}" in capsys.readouterr().out
    held.unlink()
    until(lambda: all_ended(swept), 120)
    assert run_cli(swept.folder, monkeypatch, *argv, "--json") == 13
    done = json.loads(capsys.readouterr().out)
    assert [point["reason"] for point in done["points"]] == ["completed", "cancelled", "completed"]
    assert done["points"][1]["seconds"] == 0 and done["next_command"] is None
    assert swept.trained == {"0.1 1": 1, "0.1 3": 1} and not swept.cloud.alive()


@pytest.mark.parametrize(
    ("options", "said", "then"),
    [
        ({"search": "optuna:3"}, "--detach cannot be used with --search", "--search optuna:3"),
        ({"scheduler": "tls://host:8786"}, "--detach cannot be used with --scheduler", "tls://host:8786"),
        ({"budget": 3.0}, "--detach cannot be used with --budget", "--budget 3.0"),
        (
            {"overrides": ["resources.nodes=2"]},
            "trains each of its runs on one machine",
            "--detach --set resources.nodes=2 --set resources.nodes=1",
        ),
        (
            {"matrix": {"lr": ["0.1"], "seed": range(300)}},
            "would be 150 in one queue; at most 100",
            "--machines 3 --detach",
        ),
    ],
)
def test_what_a_queue_cannot_do_is_refused_first(
    swept: Swept, options: dict[str, Any], said: str, then: str
) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        detach(swept, **options)
    assert not swept.cloud._made
    command = (refused.value.next_command or "").partition("    #")[0]
    assert command.startswith("orch sweep ") and command.endswith(then)
    assert " --matrix lr=0.1" in command and (" --detach" in command) is ("--detach" in then)


def test_of_two_settings_of_one_key_the_later_counts(swept: Swept) -> None:
    """So a command that is suggested can end with the one that corrects it."""
    found = load(Path(swept.profile), overrides=("resources.nodes=2", "resources.nodes=1"))
    assert found.resources.nodes == 1


def test_data_at_an_absolute_path_are_refused_first(swept: Swept, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    swept.write(f"data: [{{source: {tmp_path / 'data'}, target: /data}}]\n")
    with pytest.raises(UsageError, match="data at an absolute path, /data"):
        detach(swept)
    assert not swept.cloud._made


# ---------------------------------------------------------------- who gets what


def points(*names: str) -> list[Point]:
    return [Point(name, {}) for name in names]


def test_points_are_shared_in_order_and_a_longer_queue_gets_fewer() -> None:
    a, b, c, d, e = points(*"abcde")
    assert shared([a, b, c, d, e], (), {1, 2}) == {1: [a, c, e], 2: [b, d]}
    assert shared([c, d, e], [(a, 2), (b, 2)], {1, 2}) == {1: [c, d, e], 2: [a, b]}
    assert shared([c], [(a, 3), (b, 1)], {1}) == {1: [b, c], 3: [a]}
    assert shared([c], [(a, 3)], ()) == {3: [a]}


def test_a_point_that_may_be_on_its_machine_is_given_to_no_other() -> None:
    """The machine does not answer: what is bound to it stays, the others go on."""
    asked: list[tuple[int, str]] = []

    def train(number: int, point: Point) -> Done:
        asked.append((number, point.run_id))
        return Done(number, point, HostError("no answer"), True) if number == 1 else Done(number, point)

    a, b, c, d = points(*"abcd")
    done = list(Queueing(train, 2).each([c, d], [(a, 1), (b, 2)]))
    assert {(each.number, each.point.run_id) for each in done} == {(1, "a"), (2, "b"), (2, "d"), (2, "c")}
    assert asked.count((1, "a")) == 1 and (1, "c") not in asked


def test_without_any_machine_the_error_is_told_once() -> None:
    lock = threading.Lock()

    def train(number: int, point: Point) -> Done:
        with lock:
            return Done(number, point, HostError("no answer"), True)

    (done,) = Queueing(train, 2).each(points(*"abc"), ())
    assert isinstance(done.error, HostError)
