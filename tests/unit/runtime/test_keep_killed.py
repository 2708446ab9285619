"""Copies of checkpoints of a job that was killed: what it left may be half without showing it."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from orchestrator.runtime import processes
from orchestrator.runtime.keep import keep, snapshot
from orchestrator.runtime.keep.snapshot import Keeper
from orchestrator.runtime.rundir import RunDir


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    made = RunDir(str(tmp_path), "one")
    Path(made.work).mkdir(parents=True)
    return made


def test_half_a_file_that_shows_no_end_is_not_copied_after_a_kill(run: RunDir) -> None:
    work, killed = Path(run.work), list[bool]()
    keeper = Keeper(run, ["*.bin", "*.pkl"], lambda: bool(killed))
    (work / "state.bin").write_bytes(b"all of it")
    assert keeper.look(patience=0.0) == 1
    (work / "state.bin").write_bytes(b"all")
    killed.append(True)
    assert keeper.look(patience=0.0) is None
    assert keeper.hindrance == snapshot.Hindrance("incomplete", "state.bin")
    killed.clear()
    (work / "state.bin").write_bytes(b"more of it")
    (work / "state.pkl").write_bytes(pickle.dumps([1] * 9)[:-1])
    assert keeper.look(patience=0.0) is None, "a pickle has a last byte"
    (work / "state.pkl").write_bytes(pickle.dumps([1] * 9))
    assert keeper.look(patience=0.0) == 2


@pytest.mark.parametrize(
    ("ended", "killed"),
    [
        ({"code": 0, "signal": None}, False),
        ({"code": 143, "signal": None}, False),
        ({"code": 137, "signal": None}, True),
        ({"code": None, "signal": 9}, True),
        ({"code": None, "signal": 15}, True),
    ],
)
def test_a_job_that_saves_and_exits_was_not_killed(run: RunDir, ended: dict[str, Any], killed: bool) -> None:
    Path(run.exit).write_text(json.dumps(ended))
    assert keep._was_killed(run) is killed


def test_a_job_whose_end_is_not_written_yet_counts_by_its_process(run: RunDir) -> None:
    own = {"pid": os.getpid(), "start": processes.start_of(os.getpid())}
    Path(run.started).write_text(json.dumps({"job": own}))
    assert not keep._was_killed(run)
    Path(run.started).write_text(json.dumps({"job": {**own, "start": 0}}))
    assert keep._was_killed(run)
