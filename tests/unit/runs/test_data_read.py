"""What a record says of the data: the same bytes only where nothing speaks against it."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator import jobs
from orchestrator.model import DataFacts, RunRecord
from orchestrator.report.run import summary
from orchestrator.runs import collect

SENT: DataFacts = {"digest": "ab" * 32, "files": 2, "bytes": 9}
MOUNT = jobs.Mount("bwrap\x1b[2J", "mount", "/x/data")


@pytest.mark.parametrize(
    ("left", "words"),
    [
        (jobs.Left(()), "2 files, 9 B, identical on both sides"),
        (jobs.Left((), altered=("a",)), "2 files, 9 B; 1 file changed during the run: a"),
        (
            jobs.Left((), mounts=(jobs.Mount("unshare", "mount", "/"), MOUNT)),
            "2 files, 9 B sent; what the run read is not proven: bwrap called mount on /x/data",
        ),
        (
            jobs.Left((), watched=False),
            "2 files, 9 B sent; whether the run read exactly these bytes is not known",
        ),
        (None, "2 files, 9 B sent; whether the run read exactly these bytes is not known"),
    ],
)
def test_the_data_are_called_the_same_bytes_only_where_that_is_known(
    left: jobs.Left | None, words: str
) -> None:
    facts = collect.data_read(SENT, left)
    ended = {"code": 0, "signal": None, "reason": "completed"}
    shown = summary(RunRecord.from_json({"run_id": "r", "exit": ended, "data": facts}, Path("runs/r")))
    assert words in [line.strip().removeprefix("data").strip() for line in shown.splitlines()], shown


def test_a_run_without_data_has_nothing_to_prove() -> None:
    assert collect.data_read(None, None) is None
    assert collect.data_read({"digest": None, "files": 0}, None) == {"digest": None, "files": 0}
