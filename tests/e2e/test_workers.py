"""Two real workers of TensorFlow on this computer, recorded and compared with one process."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.model.outcomes import Stage
from orchestrator.model.workers import NotCompared, WorkerCause, WorkersConclusion, WorkersVerdict
from orchestrator.parity.recording import Recording, read
from orchestrator.parity.workers import compare_workers
from orchestrator.report.workers import letter
from tests.conftest import ROOT

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow, pytest.mark.processes]

EXAMPLE = ROOT / "examples" / "several" / "train.py"
FAULTS = {
    "sound": (),
    "shard": (("AutoShardPolicy.DATA", "AutoShardPolicy.OFF"),),
    "seed": (
        ("RandomState(SEED + epoch)", "RandomState(SEED + epoch + 7 * rank())"),
        ("set_random_seed(SEED)", "set_random_seed(SEED + 7 * rank())"),
    ),
    "scale": (("global_batch_size=size", "global_batch_size=size // 2"),),
}
Processes = list[dict[str, Any]]


def ports(count: int) -> list[int]:
    held = [socket.socket() for _ in range(count)]
    for each in held:
        each.bind(("127.0.0.1", 0))
    found = [int(each.getsockname()[1]) for each in held]
    for each in held:
        each.close()
    return found


def process(script: Path, folder: Path, config: str = "", steps: int = 6, **wish: Any) -> dict[str, Any]:
    return {
        "script": str(script),
        "folder": str(folder),
        "arguments": ["--steps", str(steps), "--every", "2", "--output", str(wish.pop("output", "out"))],
        "environment": {"TF_CONFIG": config} if config else {},
        "record": True,
        "stop": True,
        **wish,
    }


def workers(script: Path, folder: Path, name: str, **wish: Any) -> Processes:
    addresses = [f"127.0.0.1:{port}" for port in ports(2)]
    configs = [
        json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": rank}})
        for rank in range(2)
    ]
    return [process(script, folder / f"{name}-{rank}", config, **wish) for rank, config in enumerate(configs)]


@pytest.fixture(scope="module")
def recorded(tf_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One process, and two workers of the example as it is, to its end, and with each fault; beside them
    workers that nobody observes and that are interrupted.
    """
    folder = tmp_path_factory.mktemp("workers")
    (folder / "root").mkdir()
    (folder / "root" / "orch_runtime").symlink_to(ROOT / "orchestrator" / "runtime")
    trainings: list[Processes] = [[process(EXAMPLE, folder / "single")]]
    for name, edits in FAULTS.items():
        text = EXAMPLE.read_text(encoding="utf-8")
        for old, new in edits:
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        script = folder / name / "train.py"
        script.parent.mkdir()
        script.write_text(text, encoding="utf-8")
        trainings.append(workers(script, folder, name, stop=name != "sound"))
    silent: dict[str, Any] = {"record": False, "stop": False}
    trainings.append(workers(EXAMPLE, folder, "begun", steps=4, output=folder / "resumed", **silent))
    trainings.append(workers(EXAMPLE, folder, "resumed", output=folder / "resumed", **silent))
    plan = folder / "trainings.json"
    plan.write_text(json.dumps(trainings))
    rig = [str(tf_python), "-W", "ignore", str(Path(__file__).with_name("workers_rig.py"))]
    done = subprocess.run(
        [*rig, str(folder / "root"), str(plan)], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0 and not done.stdout, done.stdout + done.stderr[-3000:]
    return folder


@pytest.fixture
def compared(recorded: Path) -> Callable[[str], WorkersVerdict]:
    def compare(name: str) -> WorkersVerdict:
        return compare_workers(*sides(recorded, name))

    return compare


def sides(folder: Path, name: str) -> tuple[Recording, list[Recording]]:
    return read(folder / "single"), [read(folder / f"{name}-{rank}") for rank in range(2)]


def test_sound_workers_are_equal_to_one_process(compared: Callable[[str], WorkersVerdict]) -> None:
    found = compared("sound")
    assert (found.verdict, found.world, found.steps) == (WorkersConclusion.EQUAL, 2, 3), letter(found)
    assert found.unseen == () and found.facts == ()
    assert 0 < dict(found.drift)[Stage.GRADIENT] < 1e-5, "gradients are summed in another order"


def test_workers_that_read_the_same_examples_are_named(compared: Callable[[str], WorkersVerdict]) -> None:
    (found,) = compared("shard").findings
    assert (found.cause, found.ranks, found.step) == (WorkerCause.SAME_EXAMPLES, (1,), 1)
    assert (found.stage, found.like, found.examples, found.count) == (Stage.BATCH, 0, 32, 32)


def test_a_worker_with_another_seed_is_named(compared: Callable[[str], WorkersVerdict]) -> None:
    (found,) = compared("seed").findings
    assert (found.cause, found.ranks, found.stage) == (WorkerCause.SEED, (1,), Stage.BATCH)
    assert [(fact.name, fact.single, fact.worker) for fact in found.facts] == [("seed", "20", "27")]


def test_a_loss_averaged_over_a_share_is_named(compared: Callable[[str], WorkersVerdict]) -> None:
    (found,) = compared("scale").findings
    assert (found.cause, found.ranks, found.stage) == (WorkerCause.LOSS_SCALE, (0, 1), Stage.GRADIENT)


def test_a_worker_with_another_package_is_named(recorded: Path, tmp_path: Path) -> None:
    """Without an effect it is told and is no cause; a difference that it may explain is put down to it."""
    folders = {name: tmp_path / name for name in ("single", "sound-0", "sound-1")}
    for name, target in folders.items():
        shutil.copytree(recorded / name, target)
    path = folders["sound-1"] / "observe" / "environment.json"
    facts = json.loads(path.read_text())
    facts["versions"]["numpy"] = "1.0"
    path.write_text(json.dumps(facts))
    found = compare_workers(*sides(tmp_path, "sound"))
    assert found.verdict == WorkersConclusion.EQUAL
    assert [(f.rank, f.cause, f.name, f.worker) for f in found.facts] == [
        (1, WorkerCause.PACKAGES, "numpy", "1.0")
    ]
    assert "Worker 1: other packages (numpy:" in letter(found)


def test_a_missing_worker_is_told(recorded: Path) -> None:
    single, (first, _) = sides(recorded, "sound")
    found = compare_workers(single, [first])
    assert (found.verdict, found.unseen, found.missing) == (
        WorkersConclusion.NOT_COMPARED,
        (NotCompared.RANKS,),
        (1,),
    )


def test_observing_changes_no_weight_and_an_interrupted_training_ends_with_the_same(recorded: Path) -> None:
    def weights(name: str) -> str:
        (line,) = {
            line
            for rank in range(2)
            for line in (recorded / f"{name}-{rank}" / "output.log").read_text().splitlines()
            if line.startswith("Weights ")
        }
        return line

    assert "begins after step 4" in (recorded / "resumed-1" / "output.log").read_text()
    assert weights("sound") == weights("resumed")
    assert weights("begun") != weights("resumed")
