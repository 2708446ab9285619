"""Copies of checkpoints that are taken while a job writes: each is whole, whatever moment it is taken at."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.model.answers import decoded
from orchestrator.model.checkpoints import Snapshots
from orchestrator.runtime.keep import completeness, keep, snapshot
from orchestrator.runtime.keep.snapshot import Keeper
from orchestrator.runtime.rundir import RunDir

IN_PLACE = """
import pickle, time
for number in range(100000):
    time.sleep(0.02 if number % 10 else 0.4)
    with open("model.pkl", "wb") as file:
        file.write(pickle.dumps([number] * 50000)[:100000]); file.flush()
        file.write(pickle.dumps([number] * 50000)[100000:])
"""
RENAMED = """
import os, pickle, time
for number in range(100000):
    time.sleep(0.02 if number % 10 else 0.4)
    with open("model.part", "wb") as file:
        pickle.dump([number] * 50000, file)
    os.replace("model.part", "model.pkl")
"""
BACKUP = """
import json, os, time
os.makedirs("backup", exist_ok=True)
for number in range(100000):
    time.sleep(0.02 if number % 10 else 0.4)
    with open("backup/latest.weights.h5", "w") as file:
        file.write(str(number) * 1000)
    with open("backup/training_metadata.json", "w") as file:
        json.dump({"epoch": number}, file)
"""
SHARDS = """
import os, time
for number in range(100000):
    time.sleep(0.02 if number % 10 else 0.4)
    for shard in range(2):
        with open(f"ckpt-{number}.data-0000{shard}-of-00002", "w") as file:
            file.write(str(number) * 10000)
    with open(f"ckpt-{number}.index", "w") as file:
        file.write(str(number))
    with open("state.tmp", "w") as file:
        file.write(f'model_checkpoint_path: "ckpt-{number}"')
    os.replace("state.tmp", "checkpoint")
    for name in os.listdir("."):
        if name.startswith(f"ckpt-{number - 2}."):
            os.remove(name)
"""


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    made = RunDir(str(tmp_path), "one")
    Path(made.work).mkdir(parents=True)
    return made


def files_of(run: RunDir, seq: int) -> Path:
    return Path(run.path(snapshot.FOLDER)) / f"{seq:06d}/files"


def pickled(folder: Path) -> None:
    values = pickle.loads((folder / "model.pkl").read_bytes())
    assert values == [values[0]] * 50000


def backed_up(folder: Path) -> None:
    epoch = json.loads((folder / "backup/training_metadata.json").read_text())["epoch"]
    assert (folder / "backup/latest.weights.h5").read_text() == str(epoch) * 1000


def sharded(folder: Path) -> None:
    number = (folder / "checkpoint").read_text().split('"')[1].removeprefix("ckpt-")
    assert (folder / f"ckpt-{number}.index").read_text() == number
    for shard in range(2):
        assert (folder / f"ckpt-{number}.data-0000{shard}-of-00002").read_text() == number * 10000


@pytest.fixture
def writing(run: RunDir) -> Iterator[Callable[[str], subprocess.Popen[bytes]]]:
    made: list[subprocess.Popen[bytes]] = []

    def start(script: str) -> subprocess.Popen[bytes]:
        made.append(subprocess.Popen([sys.executable, "-c", script], cwd=run.work))
        return made[-1]

    yield start
    for process in made:
        process.kill()
        process.wait()


@pytest.mark.processes
@pytest.mark.parametrize(
    ("script", "globs", "check"),
    [
        (IN_PLACE, ["*.pkl"], pickled),
        (RENAMED, ["model.pkl"], pickled),
        (BACKUP, ["backup"], backed_up),
        (SHARDS, ["ckpt-*", "checkpoint"], sharded),
    ],
    ids=["in place", "renamed", "BackupAndRestore", "shards"],
)
def test_no_copy_of_a_job_that_saves_all_the_time_is_half(
    run: RunDir,
    writing: Callable[[str], subprocess.Popen[bytes]],
    script: str,
    globs: list[str],
    check: Callable[[Path], None],
) -> None:
    process, keeper, taken = writing(script), Keeper(run, globs), 0
    until = time.monotonic() + 20
    while taken < 12 and time.monotonic() < until:
        seq = keeper.look(patience=0.0)
        if seq is not None:
            check(files_of(run, seq))
            taken += 1
    process.kill()
    process.wait()
    keeper.look(patience=0.0)
    for seq in snapshot.numbers(run):
        check(files_of(run, seq))
    assert taken


def test_what_a_killed_job_left_half_is_not_copied(run: RunDir) -> None:
    work = Path(run.work)
    with zipfile.ZipFile(work / "model.keras", "w") as file:
        file.writestr("weights", os.urandom(1000))
    all_of_it = (work / "model.keras").read_bytes()
    (work / "model.keras").write_bytes(all_of_it[:-30])
    keeper = Keeper(run, ["*.keras"])
    assert keeper.look(patience=0.0) is None
    (work / "model.keras").write_bytes(all_of_it)
    assert keeper.look(patience=0.0) == 1
    assert (files_of(run, 1) / "model.keras").read_bytes() == all_of_it


def test_a_copy_is_not_reached_by_what_the_job_writes_later(run: RunDir) -> None:
    place = Path(run.work) / "state.npy"
    place.write_bytes(b"one")
    keeper = Keeper(run, ["state.npy"])
    assert keeper.look(patience=0.0) == 1
    with place.open("r+b") as file:
        file.write(b"two")
    assert (files_of(run, 1) / "state.npy").read_bytes() == b"one"
    assert keeper.look(patience=0.0) == 2
    assert keeper.look(patience=0.0) is None, "nothing new"


def test_files_that_did_not_change_are_lent(run: RunDir) -> None:
    work = Path(run.work)
    (work / "large.bin").write_bytes(os.urandom(1000))
    (work / "step.bin").write_bytes(b"1")
    keeper = Keeper(run, ["*.bin"])
    keeper.look(patience=0.0)
    (work / "step.bin").write_bytes(b"2")
    assert keeper.look(patience=0.0) == 2
    assert (files_of(run, 2) / "large.bin").stat().st_ino == (files_of(run, 1) / "large.bin").stat().st_ino


def test_the_newest_two_are_kept(run: RunDir) -> None:
    keeper = Keeper(run, ["state.bin"])
    for number in range(5):
        (Path(run.work) / "state.bin").write_text(str(number))
        keeper.look(patience=0.0)
    assert snapshot.numbers(run) == [4, 5]


def test_links_pipes_and_holes_are_no_checkpoints(run: RunDir, tmp_path: Path) -> None:
    work = Path(run.work)
    (tmp_path / "secret").write_text("secret")
    (work / "link.bin").symlink_to(tmp_path / "secret")
    (work / "folder.bin").symlink_to(tmp_path)
    os.mkfifo(work / "pipe.bin")
    with (work / "hole.bin").open("wb") as file:
        file.truncate(1 << 42)
    keeper = Keeper(run, ["*.bin"])
    assert keeper.look(patience=0.0) is None
    (work / "real.bin").write_bytes(b"x")
    assert keeper.look(patience=0.0) == 1
    assert [path.name for path in files_of(run, 1).iterdir()] == ["real.bin"]


def test_a_full_disk_keeps_the_last_copy(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    keeper = Keeper(run, ["state.bin"])
    for number in range(2):
        (Path(run.work) / "state.bin").write_text(str(number))
        keeper.look(patience=0.0)
    monkeypatch.setattr(snapshot, "_free", lambda _: 0)
    (Path(run.work) / "state.bin").write_text("more")
    assert keeper.look(patience=0.0) is None
    assert snapshot.numbers(run) == [2]


def test_logs_beside_checkpoints_keep_nothing_waiting(run: RunDir) -> None:
    work = Path(run.work)
    (work / "state.bin").write_bytes(b"x")
    with (work / "events.out.tfevents.1.host").open("ab") as log:
        log.write(b"first")
        log.flush()
        keeper = Keeper(run, ["*"])
        assert keeper.look(patience=0.0) == 1
        log.write(b"second")
        log.flush()
        assert keeper.look(patience=0.0) is None, "a log alone is no new checkpoint"


@pytest.mark.parametrize("size", [0, 95])
def test_hdf5_is_whole_when_its_superblock_says_so(tmp_path: Path, size: int) -> None:
    path = tmp_path / "weights.h5"
    head = (
        b"\x89HDF\r\n\x1a\n"
        + bytes([2, 8, 8, 0])
        + (0).to_bytes(8, "little")
        + (2**64 - 1).to_bytes(8, "little")
    )
    path.write_bytes((head + (96).to_bytes(8, "little")).ljust(96, b"\0"))
    stamp = (96, 0, 0, 0)
    assert completeness.unfinished(str(tmp_path), {"weights.h5": stamp}) is None
    path.write_bytes(path.read_bytes()[:size])
    assert completeness.unfinished(str(tmp_path), {"weights.h5": stamp}) == "weights.h5"


def touch(path: Path, content: bytes = b"x", age: float = 10.0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, (time.time() - age,) * 2)


def test_an_index_of_an_earlier_save_is_not_that_of_these_shards(run: RunDir) -> None:
    """`tf.train.Checkpoint.write` to one prefix, killed between its shards and its index."""
    work, keeper = Path(run.work), Keeper(run, ["saved"])
    touch(work / "saved/only.index", age=20)
    touch(work / "saved/only.data-00000-of-00001", age=10)
    assert keeper.look(patience=0.0) is None
    assert keeper.hindrance == snapshot.Hindrance("incomplete", "saved/only.data-00000-of-00001")
    touch(work / "saved/only.index", age=10)
    assert keeper.look(patience=0.0) == 1


def test_a_graph_of_an_earlier_save_is_not_that_of_these_variables(run: RunDir) -> None:
    work, keeper = Path(run.work), Keeper(run, ["saved"])
    touch(work / "saved/saved_model.pb", age=20)
    touch(work / "saved/variables/variables.data-00000-of-00001", age=10)
    touch(work / "saved/variables/variables.index", age=10)
    assert keeper.look(patience=0.0) is None
    touch(work / "saved/saved_model.pb", age=5)
    assert keeper.look(patience=0.0) == 1


def test_what_a_cut_save_left_is_neither_copied_nor_in_the_way(run: RunDir) -> None:
    work, keeper = Path(run.work), Keeper(run, ["saved"])
    touch(work / "saved/state.bin")
    touch(work / "saved/only_temp/part-00000-of-00001.data-00000-of-00001.tempstate5006463889006551545")
    touch(work / "saved/only_temp/part-00000-of-00001.index")
    touch(work / "saved/9.orbax-checkpoint-tmp-3/array")
    assert keeper.look(patience=0.0) == 1
    assert [path.name for path in files_of(run, 1).rglob("*") if path.is_file()] == ["state.bin"]


@pytest.mark.processes
@pytest.mark.parametrize(
    "holds",
    [
        "file = open('state.bin', 'r+b'); ready()",
        "import mmap; f = open('state.bin', 'r+b'); m = mmap.mmap(f.fileno(), 0); f.close(); ready()",
    ],
    ids=["open", "mapped"],
)
def test_a_file_that_is_held_for_writing_is_named_until_it_is_not(
    run: RunDir, holds: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keep, "_TELL_S", 0.0)
    touch(Path(run.work) / "state.bin", b"x" * 100)
    keeper, told = Keeper(run, ["*.bin"]), keep._Told(run.path("checkpoints.json"))
    script = f"def ready():\n    print(1, flush=True)\n    input()\n{holds}"
    with subprocess.Popen(
        [sys.executable, "-c", script], cwd=run.work, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        process.stdout.readline()
        assert keeper.look(patience=0.0) is None
        told.tell(keeper.hindrance)
        assert said(run)["hindrance"]["path"] == "state.bin"
        process.communicate(b"\n")
    assert keeper.look(patience=0.0) == 1
    told.tell(keeper.hindrance)
    assert said(run)["hindrance"] is None


def said(run: RunDir) -> dict[str, Any]:
    """What the verb prints."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        keep.main([run.base, run.run_id])
    return dict(json.loads(out.getvalue()))


def test_the_verb_waits_for_the_last_copy_of_a_run_that_has_ended(run: RunDir) -> None:
    touch(Path(run.work) / "state.bin")
    claimed = keep.claim(run)
    Path(run.exit).write_text("{}")

    def last() -> None:
        Keeper(run, ["*.bin"]).look(patience=0.0)
        os.close(claimed)

    threading.Timer(0.3, last).start()
    assert [each["seq"] for each in said(run)["snapshots"]] == [1]


def test_a_copy_that_was_listed_stays_while_the_job_saves_on(run: RunDir) -> None:
    """A fetch that takes longer than two saves would otherwise never bring one home."""
    keeper = Keeper(run, ["state.bin"])
    for number in range(5):
        (Path(run.work) / "state.bin").write_text(str(number))
        keeper.look(patience=0.0)
        if number == 1:
            assert [each["seq"] for each in said(run)["snapshots"]] == [1, 2]
    assert snapshot.numbers(run) == [2, 4, 5]
    said(run)
    (Path(run.work) / "state.bin").write_text("more")
    keeper.look(patience=0.0)
    assert snapshot.numbers(run) == [5, 6]


def test_a_hundred_thousand_files_are_named_and_not_copied(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "MOST_FILES", 3)
    for number in range(5):
        touch(Path(run.work) / f"saved/{number}")
    keeper = Keeper(run, ["saved"])
    assert keeper.look(patience=0.0) is None
    assert keeper.hindrance == snapshot.Hindrance("many", "")


def test_names_that_are_no_text_come_as_they_are(run: RunDir) -> None:
    names = {b"a\xff\n\x1b[31m", "ü".encode(), b"..a", b"%2e%2e"}
    for name in names:
        touch(Path(os.fsdecode(os.fsencode(run.work) + b"/" + name)))
    assert Keeper(run, ["*"]).look(patience=0.0) == 1
    listed = decoded(Snapshots, json.dumps(said(run)).encode()).snapshots[0].files
    assert {os.fsencode(file.path) for file in listed} == names


@pytest.mark.parametrize(("on_nan", "kept"), [("stop", 0), ("warn", 1)])
def test_what_a_job_saves_when_its_loss_is_no_number_replaces_no_copy(
    run: RunDir, on_nan: str, kept: int
) -> None:
    """It is asked to end, and saves once more: with `stop` the copies of before stay the newest."""
    Path(run.work, "state").write_text("nan")
    Path(run.exit).write_text("{}")
    Path(run.path("noticed.json")).write_text('{"noticed": [{"what": "not_finite"}]}')
    pid = os.fork()
    if pid == 0:
        try:
            keep.keep(run, {"checkpoints": ["state"], "on_nan": on_nan})
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    assert len(snapshot.numbers(run)) == kept
