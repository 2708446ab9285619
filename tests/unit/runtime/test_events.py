"""What a run wrote for TensorBoard is told as far as it is new, and nothing else is."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from orchestrator.runtime.agent import events
from orchestrator.runtime.rundir import RunDir

FILE = "logs/train/events.out.tfevents.1.host.2.0.v2"


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    made = RunDir(str(tmp_path), "one")
    Path(made.work, FILE).parent.mkdir(parents=True)
    Path(made.work, FILE).write_bytes(b"first")
    return made


def told(run: RunDir, have: dict[str, int]) -> dict[str, tuple[int, bytes]]:
    answer = events.grown(run, have)
    return {each["path"]: (each["at"], base64.b64decode(each["content"])) for each in answer["files"]}


def test_what_is_new_is_told_from_where_the_asker_stands(run: RunDir) -> None:
    assert told(run, {}) == {FILE: (0, b"first")}
    assert told(run, {FILE: 5}) == {}
    with Path(run.work, FILE).open("ab") as file:
        file.write(b"more")
    assert told(run, {FILE: 5}) == {FILE: (5, b"more")}
    Path(run.work, FILE).write_bytes(b"anew")
    assert told(run, {FILE: 9}) == {FILE: (0, b"anew")}


def test_neither_links_nor_pipes_nor_other_files_are_told(run: RunDir, tmp_path: Path) -> None:
    secret = tmp_path / "secret.tfevents"
    secret.write_bytes(b"secret")
    Path(run.work, "a.tfevents").symlink_to(secret)
    Path(run.work, "folder.tfevents").symlink_to(tmp_path)
    os.mkfifo(Path(run.work, "pipe.tfevents"))
    Path(run.work, "train.log").write_bytes(b"text")
    Path(os.fsdecode(run.work.encode() + b"/\xff.tfevents")).write_bytes(b"no text")
    Path(run.work, "two\nlines").mkdir()
    Path(run.work, "two\nlines", "b.tfevents").write_bytes(b"odd")
    assert set(told(run, {})) == {FILE}


def test_an_answer_has_an_end_and_says_that_there_is_more(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "_MOST_BYTES", 7)
    Path(run.work, "z.tfevents").write_bytes(b"second")
    have: dict[str, int] = {}
    came = {FILE: b"", "z.tfevents": b""}
    more = True
    while more:
        answer = events.grown(run, have)
        more = answer["more"]
        assert answer["files"], "each answer brings something on"
        assert sum(len(base64.b64decode(each["content"])) for each in answer["files"]) <= 7
        for each in answer["files"]:
            came[each["path"]] += base64.b64decode(each["content"])
            have[each["path"]] = len(came[each["path"]])
    assert came == {FILE: b"first", "z.tfevents": b"second"}


def test_a_run_that_is_not_there_has_none(tmp_path: Path) -> None:
    assert events.grown(RunDir(str(tmp_path), "one"), {}) == {"files": [], "more": False}
