"""`resume-check` on real jobs: what they leave out is named, and sound ones are not accused."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import orchestrator as orch
from orchestrator.model import ResumeCheck
from orchestrator.model.resume import Lost, Resumed
from orchestrator.report.resume import letter
from tests.nightly import sampled
from tests.parity.bed import plain, standing
from tests.parity.forks import Forks

JOBS = Path(__file__).parent / "jobs"

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

Check = Callable[..., ResumeCheck]


@pytest.fixture(scope="module")
def forks(tf_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """A python that has imported TensorFlow already."""
    made = Forks(tmp_path_factory.mktemp("forks") / "f", tf_python, plain())
    yield made
    made.close()


@pytest.fixture
def check(tf_python: Path, request: pytest.FixtureRequest, tmp_path: Path) -> Check:
    def run(job: str, without: str = "", having: str = "", checkpoints: tuple[str, ...] = ()) -> ResumeCheck:
        folder = tmp_path / "project"
        folder.mkdir()
        shutil.copy(JOBS / job, folder)
        environ = {"JOB_WITHOUT": without, "JOB_WITH": having}
        python = tf_python
        if job != "plain.py":
            forks: Forks = request.getfixturevalue("forks")
            forks.wait_for({**plain(), **environ})
            python = forks.shim
        environ["PATH"] = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
        with standing(environ, folder, 2):
            found = orch.resume_check(["python", job], checkpoints=checkpoints, folder=tmp_path)
        assert [path.name for path in folder.iterdir()] == [job], "the user's folder is as it was"
        return found

    return run


@pytest.mark.parametrize(
    ("job", "having"),
    sampled(
        [
            ("loop.py", ""),
            ("loop.py", "dropout,statistics"),
            ("loop.py", "halving,scale"),
            ("fitted.py", "backup"),
            ("fitted.py", ""),
            ("plain.py", ""),
        ],
        {("loop.py", "dropout,statistics"), ("fitted.py", "backup"), ("plain.py", "")}.__contains__,
    ),
)
def test_a_job_that_restores_everything_is_exact(check: Check, job: str, having: str) -> None:
    found = check(job, having=having)

    assert (found.verdict, found.omissions) == (Resumed.EXACT, ()), letter(found)
    assert found.compared == found.steps - found.resumed > 0


@pytest.mark.parametrize(
    ("job", "without", "having", "lost"),
    sampled(
        [
            ("loop.py", "optimizer", "", Lost.SLOTS),
            ("loop.py", "optimizer", "schedule", Lost.ITERATIONS),
            ("loop.py", "dropout", "dropout", Lost.DROPOUT),
            ("loop.py", "statistics", "statistics", Lost.STATISTICS),
            ("loop.py", "rate", "halving", Lost.LEARNING_RATE),
            ("loop.py", "scale", "scale", Lost.LOSS_SCALE),
            ("loop.py", "average", "average", Lost.AVERAGE),
            ("fitted.py", "weights", "", Lost.SLOTS),
            ("plain.py", "rng", "", Lost.GENERATOR_NUMPY),
            ("plain.py", "", "global", Lost.GENERATOR_NUMPY),
            ("plain.py", "", "python", Lost.GENERATOR_PYTHON),
        ],
        lambda row: row[1] in ("optimizer", "dropout", "rate", "rng") and row[2] != "schedule",
    ),
)
def test_what_is_not_restored_is_named_and_confirmed_by_putting_it_back(
    check: Check, job: str, without: str, having: str, lost: Lost
) -> None:
    found = check(job, without=without, having=having)

    assert found.verdict == Resumed.NOT_EXACT
    first = found.omissions[0]
    assert (first.lost, first.confirmed) == (lost, True), letter(found)
    assert all(each.confirmed for each in found.omissions)


@pytest.mark.parametrize(
    ("job", "without", "having", "lost", "like"),
    sampled(
        [
            ("loop.py", "resume", "", Lost.EVERYTHING, 0),
            ("loop.py", "counter", "", Lost.DATA_POSITION, 1),
            ("loop.py", "order", "", Lost.DATA_POSITION, 2),
            ("fitted.py", "epoch", "", Lost.EPOCH, 0),
            ("fitted.py", "", "patience,backup", Lost.PATIENCE, 0),
            ("fitted.py", "", "best,backup", Lost.BEST, 0),
            ("plain.py", "resume", "", Lost.EVERYTHING, 0),
        ],
        lambda row: row[0] != "plain.py" and row[1] in ("resume", "order", "epoch"),
    ),
)
def test_a_job_that_goes_on_at_another_place_is_told_so(
    check: Check, job: str, without: str, having: str, lost: Lost, like: int
) -> None:
    found = check(job, without=without, having=having)

    assert found.verdict == Resumed.NOT_EXACT
    assert [(each.lost, each.like) for each in found.omissions] == [(lost, like)], letter(found)


def test_a_job_that_differs_from_itself_blames_no_checkpoint(check: Check) -> None:
    found = check("loop.py", without="nothing")

    assert (found.verdict, found.omissions) == (Resumed.UNSTABLE, ())
    assert "step 1" in found.why


def test_a_job_without_checkpoints_is_told_how_to_write_one(check: Check) -> None:
    found = check("loop.py", without="checkpoint")

    assert found.verdict == Resumed.NO_CHECKPOINT
    assert "BackupAndRestore" in letter(found)


def test_checkpoints_are_looked_for_where_they_are_said_to_be(check: Check) -> None:
    assert check("loop.py", checkpoints=("elsewhere",)).verdict == Resumed.NO_CHECKPOINT


def test_a_folder_that_no_copy_holds_is_refused(tmp_path: Path) -> None:
    with standing({"PATH": os.environ["PATH"]}, tmp_path, 1), pytest.raises(orch.UsageError, match="below"):
        orch.resume_check(["python3", "x.py"], checkpoints=["../ckpt"], folder=tmp_path)
