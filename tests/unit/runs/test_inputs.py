"""What a refused repetition names: the files and packages that are not those of the record."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.model import DataFacts, Lock, RunRecord
from orchestrator.model.stacks import Pin
from orchestrator.runs import sbom
from orchestrator.runs.inputs import Inputs, differences, keep_inputs


def lock(digest: str, **versions: str) -> Lock:
    pins = tuple(Pin(name, version, ()) for name, version in versions.items())
    return Lock(Path("requirements.lock"), "requirements", digest, pins)


THEN = Inputs(
    command=("python", "train.py"),
    code={"train.py": "1", "lib.py": "1"},
    code_digest="code",
    data={"digest": "data", "files": 5, "bytes": 5},
    data_files={f"data/{name}.csv": "1" for name in "abcde"},
    lock=lock("lock", keras="3.1", numpy="2.0"),
)
OTHER_DATA: DataFacts = {"digest": "other", "files": 5, "bytes": 5}


@pytest.fixture
def record(tmp_path: Path) -> RunRecord:
    keep_inputs(tmp_path, THEN)
    components = [{"type": "library", "name": pin.name, "version": pin.version} for pin in THEN.lock.pins]
    (tmp_path / sbom.FILE).write_text(json.dumps({"components": components}))
    facts: dict[str, Any] = {
        "exit": {"reason": "completed"},
        "command": list(THEN.command),
        "code": {"digest": "code", "files": 2},
        "data": THEN.data,
        "stack": {"digest": "stack", "lock": "lock"},
        "machine": {"instance_type": "local"},
    }
    return RunRecord("first", str(tmp_path), **facts)


def test_nothing_is_named_where_nothing_changed(record: RunRecord) -> None:
    assert differences(record, THEN) == []


def test_the_first_files_of_the_data_are_named_and_the_others_counted(record: RunRecord) -> None:
    files = {**THEN.data_files, **{f"data/{name}.csv": "2" for name in "abc"}, "data/f.csv": "1"}
    del files["data/d.csv"]
    (said,) = differences(record, replace(THEN, data=OTHER_DATA, data_files=files))
    named = "data/a.csv changed, data/b.csv changed, data/c.csv changed, and 2 more"
    assert said == f"the data: 5 files of 5 bytes then, 5 files of 5 bytes now, {named}"
    (record.folder / "data.json").unlink()
    (said,) = differences(record, replace(THEN, data=OTHER_DATA, data_files=files))
    assert said.endswith("now, not the same bytes"), "a record of an older orch has no list"


def test_files_of_the_code_are_named(record: RunRecord) -> None:
    now = replace(THEN, code={"train.py": "2", "new.py": "1"}, code_digest="other")
    assert differences(record, now) == ["the code: train.py changed, new.py is new, lib.py is gone"]


def test_packages_are_named_with_both_versions(record: RunRecord) -> None:
    now = replace(THEN, lock=lock("other", keras="3.2", pandas="2.2"))
    names = "keras (3.1 then, 3.2 now), numpy (2.0 then, absent now), pandas (new, 2.2)"
    assert differences(record, now) == [f"the lock of the packages: {names}"]
    same = replace(THEN, lock=lock("other", keras="3.1", numpy="2.0"))
    assert differences(record, same) == ["the lock of the packages: the same versions, other bytes"]
    (record.folder / sbom.FILE).unlink()
    assert differences(record, now) == ["the lock of the packages: the bytes of the file are others"]
