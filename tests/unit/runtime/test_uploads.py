"""What a machine sends into a run's store: whole copies, bounded, and tried again after a refusal."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.jobs import Mount
from orchestrator.runs.stored import StoredRun
from orchestrator.runtime.http import File, HttpError
from orchestrator.runtime.keep import snapshot
from orchestrator.runtime.keep.snapshot import Keeper
from orchestrator.runtime.rundir import RunDir, read_json, uncollected, write_json
from orchestrator.runtime.transfer import outputs
from orchestrator.runtime.upload import upload
from orchestrator.runtime.upload.upload import Grant, Uploader
from orchestrator.storage.memory import MemoryStore

PREFIX = "runs/one/attempts/1/"


class Bucket:
    """Takes forms as a bucket does. The next `left` are taken, later ones refused as `kind`."""

    def __init__(self) -> None:
        self.store = MemoryStore("memory://one")
        self.left = 1000
        self.kind = "passing"

    def post_form(self, url: str, fields: dict[str, str], body: bytes | File) -> Any:
        assert url == "https://bucket" and fields["policy"] == "signed"
        assert fields["key"].startswith("runs/one/attempts/")
        self.left -= 1
        if self.left < 0:
            raise HttpError(self.kind, "The bucket did not take it.")
        content = body if isinstance(body, bytes) else Path(body.path).read_bytes()[: body.size]
        self.store.put(fields["key"], content)
        return SimpleNamespace(status=204)

    @property
    def run(self) -> StoredRun:
        return StoredRun(self.store, "one")

    def names(self) -> list[str]:
        return [each.key.removeprefix(PREFIX) for each in self.store.list()]


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    made = RunDir(str(tmp_path), "one")
    Path(made.work).mkdir(parents=True)
    Path(made.log).write_text("hello\n")
    write_json(made.spec, {"awaited": True, "trees": [], "outputs": ["out*"], "cwd": made.work})
    write_json(made.started, {"started_at": 1.0})
    return made


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


def uploader(run: RunDir, bucket: Bucket) -> Uploader:
    return Uploader(run, Grant("https://bucket", {"policy": "signed"}, PREFIX), bucket)  # type: ignore[arg-type]


def save(run: RunDir, keeper: Keeper, number: int) -> None:
    """A new checkpoint, under a name of its own."""
    for old in Path(run.work).glob("ckpt-*"):
        old.unlink()
    (Path(run.work) / f"ckpt-{number}.ü").write_text(f"step {number}")
    (Path(run.work) / "ckpt-same").write_text("same")
    assert keeper.look(patience=0.0) is not None


def newest(bucket: Bucket, into: Path) -> str:
    """The step of the newest whole copy in the bucket, fetched as another computer would."""
    found = bucket.run.newest_checkpoint()
    assert found is not None
    bucket.run.fetch_checkpoint(*found, into)
    (path,) = into.glob("ckpt-*.ü")
    assert (into / "ckpt-same").read_text() == "same"
    return path.read_text()


def test_copies_take_turns_and_names_do_not_add_up(run: RunDir, bucket: Bucket, tmp_path: Path) -> None:
    keeper, sending = Keeper(run, ["ckpt-*"]), uploader(run, bucket)
    for number in range(5):
        save(run, keeper, number)
        sending.look()
        assert newest(bucket, tmp_path / f"back-{number}") == f"step {number}"
    slots = [key for key in bucket.names() if key.startswith("checkpoints/")]
    assert len(slots) == 2 * (1 + 2)


def test_of_all_attempts_the_newest_two_copies_stay(run: RunDir, bucket: Bucket, tmp_path: Path) -> None:
    keeper, number = Keeper(run, ["ckpt-*"]), 0
    for attempt, saves, left in ((1, 3, {"1"}), (2, 1, {"1", "2"}), (3, 2, {"3"})):
        there = PREFIX.replace("/1/", f"/{attempt}/")
        sending = Uploader(run, Grant("https://bucket", {"policy": "signed"}, there), bucket)  # type: ignore[arg-type]
        for _ in range(saves):
            number += 1
            save(run, keeper, number)
            sending.look()
        sending.look(now=True)
        bucket.run.forget_old_checkpoints()
        found = [key.split("/") for key in (each.key for each in bucket.store.list()) if "/slot-" in key]
        assert {parts[3] for parts in found} == left
        assert newest(bucket, tmp_path / f"back-{attempt}") == f"step {number}"
    assert len([each for each in bucket.store.list() if each.key.endswith("output.log")]) == 3


@pytest.mark.parametrize("left", range(3))
def test_a_copy_that_is_cut_anywhere_leaves_the_one_before(
    run: RunDir, bucket: Bucket, tmp_path: Path, left: int
) -> None:
    keeper, sending = Keeper(run, ["ckpt-*"]), uploader(run, bucket)
    for number in (1, 2):
        save(run, keeper, number)
        sending.look()
    save(run, keeper, 3)
    bucket.left = left
    sending.look()
    assert newest(bucket, tmp_path / "cut") == "step 2"
    bucket.left = 1000
    sending.look(now=True)
    assert newest(bucket, tmp_path / "back") == "step 3"


def test_what_a_killed_upload_left_is_no_copy(run: RunDir, bucket: Bucket, tmp_path: Path) -> None:
    """Another process starts with what is in the slots unknown to it."""
    keeper = Keeper(run, ["ckpt-*"])
    save(run, keeper, 1)
    uploader(run, bucket).look()
    save(run, keeper, 2)
    bucket.left = 2
    uploader(run, bucket).look()
    assert newest(bucket, tmp_path / "one") == "step 1"
    bucket.left = 1000
    uploader(run, bucket).look()
    assert newest(bucket, tmp_path / "two") == "step 2"


def test_the_copy_that_is_on_its_way_is_kept(run: RunDir, bucket: Bucket) -> None:
    keeper = Keeper(run, ["ckpt-*"])
    save(run, keeper, 1)
    bucket.left = 0
    uploader(run, bucket).look()
    snapshot.hold(run, 1, "client")
    for number in (2, 3, 4):
        save(run, keeper, number)
    assert snapshot.numbers(run) == [1, 3, 4]


def test_nothing_is_sent_for_a_while_after_a_refusal_and_it_is_told(run: RunDir, bucket: Bucket) -> None:
    keeper, sending = Keeper(run, ["ckpt-*"]), uploader(run, bucket)
    save(run, keeper, 1)
    bucket.left, bucket.kind = 0, "denied"
    sending.look()
    assert (read_json(run.path("uploads.json")) or {})["refused"] == "The bucket did not take it."
    asked = bucket.left
    sending.look()
    assert bucket.left == asked


def test_what_a_run_left_is_there_before_its_end(run: RunDir, bucket: Bucket, tmp_path: Path) -> None:
    end(run)
    sending = uploader(run, bucket)
    for left in range(4):
        bucket.left = left
        assert not sending.finish()
        assert bucket.run.ended(1) is None and uncollected(run)
    bucket.left = 1000
    assert sending.finish()
    state = bucket.run.ended(1)
    assert state is not None and state.exit is not None and state.exit.reason == "completed"
    assert state.ended_at == 2.0
    (entry,) = [each for each in bucket.run.fetch_ended(1, tmp_path / "home").entries if each.kind == "file"]
    assert (tmp_path / "home/outputs" / entry.path).read_text() == "result"
    assert (tmp_path / "home/output.log").read_text() == "hello\n"
    assert not uncollected(run), "the machine need not be kept for it"


def test_what_speaks_against_the_data_goes_with_the_results(
    run: RunDir, bucket: Bucket, tmp_path: Path
) -> None:
    end(run)
    write_json(run.outputs, {**(read_json(run.outputs) or {}), "altered": ["train/a"]})
    mount = {"program": "bwrap", "call": "mount", "target": "/data"}
    write_json(run.mounts, {"watched": False, "mounts": [mount]})
    assert uploader(run, bucket).finish()
    left = bucket.run.fetch_ended(1, tmp_path / "home")
    assert (left.altered, left.mounts, left.watched) == (("train/a",), (Mount(**mount),), False)


def test_what_cannot_be_sent_keeps_the_machine_waiting(run: RunDir, bucket: Bucket) -> None:
    end(run, {"path": "pipe", "kind": "special"})
    assert uploader(run, bucket).finish()
    assert bucket.run.ended(1) is not None
    assert uncollected(run)


def test_a_form_that_has_ended_is_not_tried_again(run: RunDir, bucket: Bucket) -> None:
    end(run)
    bucket.left, bucket.kind = 0, "denied"
    assert uploader(run, bucket).finish()
    assert not (read_json(run.path("uploads.json")) or {})["done"]


def end(run: RunDir, *more: dict[str, str]) -> None:
    (Path(run.work) / "out ü").write_text("result")
    outputs.write(run)
    found = read_json(run.outputs) or {}
    write_json(run.outputs, {**found, "entries": [*found["entries"], *more]})
    ended = {"code": 0, "signal": None, "reason": "completed", "detail": "", "noticed": [], "ended_at": 2.0}
    write_json(run.exit, ended)


def test_how_far_it_is(run: RunDir, bucket: Bucket, capsys: pytest.CaptureFixture[str]) -> None:
    def state() -> str:
        assert upload.main([run.base, run.run_id]) == 0
        return str(json.loads(capsys.readouterr().out)["state"])

    assert state() == "none"
    end(run)
    held = upload.claim(run)
    assert state() == "going"
    os.close(held)
    assert state() == "over"
    uploader(run, bucket).finish()
    assert state() == "done"
