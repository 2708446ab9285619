"""The curves of a run in a real TensorBoard: while it trains, once its machine is gone, and afterwards."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import orchestrator as orch
from orchestrator.api.tensorboard import Board, tensorboard
from orchestrator.errors import LocalError, UsageError
from orchestrator.model import Silent
from orchestrator.runs import background_download
from orchestrator.stack.tool import TENSORBOARD, python_with
from tests.unit import here_cloud
from tests.unit.here_cloud import HereCloud

pytestmark = [pytest.mark.processes, pytest.mark.registry]

WRITER = """
import sys
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
writer = EventFileWriter(sys.argv[1])
for step in range(4):
    value = Summary.Value(tag="loss", simple_value=1 / (step + 1))
    writer.add_event(Event(step=step, wall_time=1.0 + step, summary=Summary(value=[value])))
writer.close()
"""

TRAIN = """
import os, pathlib, time
content, cut = pathlib.Path("events.bin").read_bytes(), {cut}
folder = pathlib.Path("{folder}/train")
folder.mkdir(parents=True)
with open(folder / "events.out.tfevents.1.host", "ab", buffering=0) as file:
    file.write(content[:cut])
    print("half", flush=True)
    while not pathlib.Path("{go}").exists():
        time.sleep(0.05)
    file.write(content[cut:])
pathlib.Path("result.txt").write_text("done")
"""


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file of events with four values of `loss`, by TensorBoard's own writer."""
    folder = tmp_path_factory.mktemp("written")
    subprocess.run([python_with(TENSORBOARD, Silent()), "-c", WRITER, folder], check=True, timeout=120)
    (file,) = folder.iterdir()
    return file.read_bytes()


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class Job:
    """A run that writes the first half of its events, and the rest once it is told to."""

    def __init__(self, folder: Path, cloud: HereCloud, content: bytes) -> None:
        self.folder, self.cloud = folder, cloud
        self.go = folder.with_name("go")
        self.content = content

    def write(self, outputs: str = "result.txt", folder: str = "logs") -> None:
        script = TRAIN.format(cut=len(self.content) * 2 // 3, go=self.go, folder=folder)
        here_cloud.project(self.folder, script, more=f"  outputs: [{outputs}]\n")
        (self.folder / "events.bin").write_bytes(self.content)

    def begin(self) -> None:
        orch.up(self.folder / "orch.yaml", folder=self.folder, approve=lambda *_: True)
        orch.train(run_id="one", folder=self.folder, detach=True)
        until(lambda: self.board().files == 1)

    def board(self, **wishes: Any) -> Board:
        return tensorboard("one", folder=self.folder, **wishes)


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes) -> Iterator[Job]:
    cloud = here_cloud.cloud(tmp_path / "machines", monkeypatch, prepared=True)
    yield Job(tmp_path / "p", cloud, content)
    for machine in cloud.alive():
        cloud.kill(machine)


def until(holds: Callable[[], bool], seconds: float = 60) -> None:
    limit = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < limit, "it never became so"
        time.sleep(0.2)


def steps(port: int, run: str) -> list[int]:
    """The steps of `loss` in one of TensorBoard's runs, as it answers a browser."""
    return [step for _, step, _ in ask(port, f"scalars?run={quote(run, safe='')}&tag=loss")]


def ask(port: int, what: str) -> Any:
    url = f"http://127.0.0.1:{port}/data/plugin/scalars/{what}"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=10) as answer:
        return json.load(answer)


def test_a_run_that_trains_is_shown_live_and_the_rest_when_it_is_written(job: Job, port: int) -> None:
    job.write(folder="my logs")
    job.begin()
    seen: list[Any] = []

    def look(board: Board) -> None:
        assert not board.ended

        def watch() -> None:
            name = "events/my logs/train"
            with suppress(AssertionError):
                until(lambda: name in ask(port, "tags"))
                seen.append(steps(port, name))
                job.go.touch()
                until(lambda: steps(port, name) == [0, 1, 2, 3])
                seen.append(steps(port, name))
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=watch, daemon=True).start()

    with pytest.raises(KeyboardInterrupt):
        job.board(show=look, port=port)
    assert seen and 0 < len(seen[0]) < 4 and seen[-1] == [0, 1, 2, 3]
    until(lambda: not answers(port), 10)


def answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def test_what_was_written_is_kept_when_the_machine_goes(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_download, "_SELDOM_S", 0.2)
    job.write()
    brought = job.folder / "runs/one/events/logs/train/events.out.tfevents.1.host"

    def lose() -> None:
        until(brought.exists)
        for machine in job.cloud.alive():
            job.cloud.kill(machine)

    threading.Thread(target=lose, daemon=True).start()
    with pytest.raises(orch.OrchError):
        orch.run(job.folder / "orch.yaml", run_id="one", folder=job.folder)
    assert brought.read_bytes() == job.content[: len(job.content) * 2 // 3]
    assert job.board() == Board("one", str(job.folder / "runs/one"), 1, brought.stat().st_size, ended=True)


def test_what_comes_home_as_an_output_is_there_once(job: Job) -> None:
    job.write(outputs="result.txt, logs")
    job.begin()
    assert (job.folder / "runs/one/events/logs/train").is_dir()
    job.go.touch()
    orch.attach("one", folder=job.folder)
    assert not (job.folder / "runs/one/events").exists()
    file = job.folder / "runs/one/outputs/logs/train/events.out.tfevents.1.host"
    assert file.read_bytes() == job.content
    once = Board("one", str(job.folder / "runs/one"), 1, len(job.content), ended=True)
    assert tensorboard(folder=job.folder) == once, "its machine is still there, and knows no more"
    orch.down(folder=job.folder)
    assert job.board() == once
    assert tensorboard(folder=job.folder).run_id == "one", "the latest run is meant by default"


@pytest.fixture
def pulled(tmp_path: Path, content: bytes) -> Path:
    """A project with the record of a run that wrote events, and of one that wrote none."""
    for name in ("one", "none"):
        run = tmp_path / "runs" / name
        (run / "outputs/logs").mkdir(parents=True)
        record = {
            "schema": "orch.run/1", "run_id": name, "command": ["true"], "machine": {"id": "m"},
            "exit": {"code": 0, "reason": "completed"}, "path": str(run),
        }  # fmt: skip
        (run / "run.json").write_text(json.dumps(record))
    (tmp_path / "runs/one/outputs/logs/events.out.tfevents.1.host").write_bytes(content)
    return tmp_path


def test_a_run_without_events_and_one_that_is_not_there_are_refused(pulled: Path) -> None:
    with pytest.raises(UsageError, match="wrote nothing for TensorBoard"):
        tensorboard("none", folder=pulled)
    with pytest.raises(UsageError, match="Similar ids: one"):
        tensorboard("onne", folder=pulled)


def test_a_port_that_is_taken_is_told_before_anything_is_done(pulled: Path, port: int) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        with pytest.raises(LocalError, match=f"Port {port}") as refused:
            tensorboard("one", folder=pulled, port=port, show=lambda _: None)
    assert refused.value.next_command == f"orch tensorboard one --port {port + 1}"


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL, signal.SIGTERM])
def test_the_command_shows_a_run_until_it_ends_and_leaves_nothing(pulled: Path, port: int, end: int) -> None:
    words = [sys.executable, "-m", "orchestrator", "tensorboard", "one", "--port", str(port)]
    command = subprocess.Popen(
        words, cwd=pulled, env={**os.environ, "PYTHONPATH": str(Path(orch.__file__).parents[1])},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert command.stderr is not None
    try:
        assert command.stderr.readline() == f"one: http://localhost:{port}/\n"
        until(lambda: "outputs/logs" in ask(port, "tags"))
        assert steps(port, "outputs/logs") == [0, 1, 2, 3]
    finally:
        command.send_signal(end)
        out, _ = command.communicate(timeout=30)
    if end == signal.SIGINT:
        assert (command.returncode, out) == (0, "")
    until(lambda: not answers(port), 10)
