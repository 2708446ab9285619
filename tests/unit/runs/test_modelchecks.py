"""After a run: every model, weight and vocabulary that came home, checked in one process on each side."""

from __future__ import annotations

import json
import os
import pickle
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import orchestrator.report
from orchestrator.hosts.here import HereHost
from orchestrator.model import Agent, Entry, RunRecord
from orchestrator.report.models import model_lines
from orchestrator.report.run import summary
from orchestrator.runs.model_check import Side, check, started_ahead
from orchestrator.runtime import space
from orchestrator.runtime.modelcheck.sandbox import Request, answers
from tests.unit.far_side import agent_at

SCHEMA = Path(orchestrator.report.__file__).with_name("run.schema.json")


class Call:
    """Pickles as a call of `function`."""

    def __init__(self, function: Any, argument: str) -> None:
        self.call = function, (argument,)

    def __reduce__(self) -> Any:
        return self.call


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n"


def side(folder: Path) -> Side:
    """This computer, by a Python without any framework."""
    base = folder.parent / f"{folder.name}-base"
    agent = Agent(sys.executable, str(base / "runtime"), str(base)) if base.exists() else agent_at(base)
    return Side(HereHost(), agent, str(folder), str(folder))


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("there", "here"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "vocab.txt").write_text("one\ntwo\n")
        (tmp_path / name / "classes.json").write_text('{"cat": 0}')
        (tmp_path / name / "metrics.json").write_text('{"loss": 0.5}')
    return tmp_path / "there", tmp_path / "here"


def checked(folders: tuple[Path, Path], *imports: str) -> dict[str, object] | None:
    there, here = folders
    entries = [Entry(path.name, "file", path.stat().st_size, 0o644, "") for path in sorted(there.iterdir())]
    return check(side(there), side(here), entries, there.parent, imports)


def test_what_is_the_same_is_said_to_be(folders: tuple[Path, Path]) -> None:
    answer = checked(folders)
    assert answer is not None
    files = answer["files"]
    assert isinstance(files, list)
    assert [(each["path"], each["equal"]) for each in files] == [("classes.json", True), ("vocab.txt", True)]
    assert (answer["loaded"], answer["equal"], answer["reason"]) == (True, True, None)
    assert len(json.loads((folders[0].parent / "model-check.json").read_text())["results"]) == 2


def test_another_vocabulary_is_told(folders: tuple[Path, Path]) -> None:
    (folders[1] / "vocab.txt").write_text("two\none\n")
    answer = checked(folders)
    assert answer is not None and answer["path"] == "vocab.txt"
    assert (answer["loaded"], answer["equal"]) == (True, False)


def test_the_worst_is_the_answer_with_its_way_out(folders: tuple[Path, Path]) -> None:
    for folder in folders:
        (folder / "model.keras").write_bytes(POINTER)
    answer = checked(folders)
    assert answer is not None and answer["path"] == "model.keras" and answer["loaded"] is False
    assert "git-lfs pointer" in str(answer["reason"])
    record = RunRecord("r", "r", {"code": 0, "reason": "completed"}, model_check=answer)
    assert "git lfs pull" in summary(record)


def test_a_run_without_any_has_no_answer(folders: tuple[Path, Path]) -> None:
    for folder in folders:
        for name in ("vocab.txt", "classes.json"):
            (folder / name).unlink()
    assert checked(folders) is None


def test_a_check_that_dies_says_so(folders: tuple[Path, Path], tmp_path: Path) -> None:
    there = side(folders[0])
    dead = tmp_path / "dead"
    dead.write_text("#!/bin/sh\necho 'out of memory' >&2\nexit 9\n")
    dead.chmod(0o755)
    gone = Side(there.host, Agent(str(dead), there.agent.root, there.agent.base), there.outputs, there.code)
    answer = check(gone, side(folders[1]), [Entry("vocab.txt", "file", 8, 0o644, "")], tmp_path)
    assert answer is not None and answer["equal"] is None
    assert "the check itself ended with 9: out of memory" in str(answer["reason"])


# ---------------------------------------------------------------- started ahead


def test_a_check_that_was_started_ahead_reads_what_came_later(folders: tuple[Path, Path]) -> None:
    there, here = folders
    outputs = here.parent / "came"
    outputs.mkdir()
    with started_ahead(side(outputs)) as ready:
        assert ready.ahead is not None
        for path in sorted(here.iterdir()):
            (outputs / path.name).write_bytes(path.read_bytes())
        answer = check(side(there), ready, [Entry("vocab.txt", "file", 8, 0o644, "")], here.parent)
    assert answer is not None
    assert (answer["loaded"], answer["equal"], answer["reason"]) == (True, True, None)


@pytest.mark.parametrize("ending", ["gave up", "failed"])
def test_one_that_is_gone_when_it_is_asked_is_replaced(
    folders: tuple[Path, Path], tmp_path: Path, ending: str
) -> None:
    program = tmp_path / "gone"
    program.write_text(f"#!/bin/sh\nexit {0 if ending == 'gave up' else 9}\n")
    program.chmod(0o755)
    whole = side(folders[1])
    gone = Side(
        whole.host, Agent(str(program), whole.agent.root, whole.agent.base), whole.outputs, whole.code
    )
    with started_ahead(gone) as ready:
        usable = Side(whole.host, whole.agent, whole.outputs, whole.code, ready.ahead)
        answer = check(side(folders[0]), usable, [Entry("vocab.txt", "file", 8, 0o644, "")], tmp_path)
    assert answer is not None and (answer["loaded"], answer["equal"]) == (True, True)


# ---------------------------------------------------------------- what would run code


def test_what_would_run_code_is_in_the_record_and_on_the_screen(folders: tuple[Path, Path]) -> None:
    mark = folders[0].parent / "was run"
    for folder in folders:
        (folder / "scaler.pkl").write_bytes(pickle.dumps(Call(os.mkdir, str(mark))))
    answer = checked(folders)
    assert answer is not None and not mark.exists()
    assert (answer["path"], answer["loaded"], answer["equal"]) == ("scaler.pkl", False, None)
    assert answer["not_checked"] == "would-run-code"
    ended = {"code": 0, "signal": None, "reason": "completed"}
    record = RunRecord("r", Path("r"), ended, model_check=answer)
    assert "scaler.pkl: not checked: would run code (posix.mkdir)" in summary(record)
    Draft202012Validator(json.loads(SCHEMA.read_text())).validate(record.as_json())


def test_a_worse_file_does_not_hide_that_another_was_not_checked(folders: tuple[Path, Path]) -> None:
    for folder in folders:
        (folder / "model.keras").write_bytes(POINTER)
        (folder / "scaler.pkl").write_bytes(pickle.dumps(Call(os.mkdir, "x")))
    answer = checked(folders)
    assert answer is not None and answer["path"] == "model.keras"
    record = RunRecord("r", Path("r"), {"code": 0, "reason": "completed"}, model_check=answer)
    assert "scaler.pkl: not checked: would run code (posix.mkdir)" in summary(record)


def test_a_format_without_a_reader_is_named_and_not_passed_over(folders: tuple[Path, Path]) -> None:
    for folder in folders:
        (folder / "net.pt").write_bytes(b"PK\x03\x04 anything")
        (folder / "net.safetensors").write_bytes(b"anything")
    answer = checked(folders)
    assert answer is not None
    shown = summary(RunRecord("r", "r", {"code": 0, "reason": "completed"}, model_check=answer))
    assert "net.pt: not checked: no reader for its format (a file of PyTorch)" in shown
    assert "net.safetensors: not checked: no reader for its format (a file of safetensors)" in shown
    assert "2 files load here and hold the same values: classes.json, vocab.txt" in shown
    record = RunRecord("r", "r", {"code": 0, "signal": None, "reason": "completed"}, model_check=answer)
    Draft202012Validator(json.loads(SCHEMA.read_text())).validate(record.as_json())


def test_a_file_without_a_telling_name_is_known_by_its_content(folders: tuple[Path, Path]) -> None:
    for folder in folders:
        (folder / "state").write_bytes(pickle.dumps({"rate": 0.5}, protocol=4))
        (folder / "events.out").write_bytes(b"nothing of the kind")
        (folder / "link").symlink_to(folder / "state")
    answer = checked(folders)
    assert answer is not None
    files = answer["files"]
    assert isinstance(files, list)
    assert "state" in [each["path"] for each in files]
    assert not {"events.out", "link"} & {each["path"] for each in files}


def test_files_beyond_what_one_command_can_name_are_said_not_to_be_checked(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.runs.model_check._MOST_FILES", 1)
    answer = checked(folders)
    assert answer is not None
    shown = summary(RunRecord("r", "r", {"code": 0, "reason": "completed"}, model_check=answer))
    assert "classes.json loads here and holds the same values" in shown
    assert "vocab.txt: not checked: too many files (1 were checked)" in shown


OWN = """
import os, pathlib
pathlib.Path(__file__).with_name("was imported").write_text("x") if os.access(__file__, os.W_OK) else None
class Table:
    pass
"""


def test_a_module_of_the_project_is_imported_where_the_profile_names_it_alone(
    folders: tuple[Path, Path],
) -> None:
    table = b"\x80\x04\x8c\x06tables\x8c\x05Table\x93)\x81}\x8c\x05width" + b"K\x03sb."
    for folder in folders:
        (folder / "features.pkl").write_bytes(table)
        (folder / "tables.py").write_text(OWN)
    refused = checked(folders)
    assert refused is not None and refused["not_checked"] == "would-run-code"
    assert "tables.Table" in str(refused["reason"]) and "train.check_imports" in str(refused["way_out"])
    named = checked(folders, "tables")
    assert named is not None and "tables.Table" not in str(named["reason"])
    assert not (folders[1] / "was imported").exists()


@pytest.mark.parametrize(
    "answer",
    [b"", b"[" * 100_000, b'{"results": 7}', b'{"results": [1, 2]}', b'{"loaded": true, "path": "\x1b[2J"}'],
)
def test_a_machine_that_answers_anything_is_not_believed(
    folders: tuple[Path, Path], tmp_path: Path, answer: bytes
) -> None:
    (tmp_path / "answer").write_bytes(answer)
    liar = tmp_path / "liar"
    liar.write_text(f"#!/bin/sh\ncat '{tmp_path}/answer'\n")
    liar.chmod(0o755)
    there = side(folders[0])
    lies = Side(there.host, Agent(str(liar), there.agent.root, there.agent.base), there.outputs, there.code)
    found = check(lies, side(folders[1]), [Entry("vocab.txt", "file", 8, 0o644, "")], tmp_path)
    assert found is not None and found["equal"] is None and "\x1b" not in str(found)


def test_a_check_that_does_not_end_is_an_answer_and_no_error(
    folders: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.runs.model_check._TIMEOUT", 0.3)
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    there = side(folders[0])
    late = Side(there.host, Agent(str(slow), there.agent.root, there.agent.base), there.outputs, there.code)
    found = check(late, late, [Entry("vocab.txt", "file", 8, 0o644, "")], tmp_path)
    assert found is not None and found["loaded"] is False and "did not end" in str(found["reason"])


def test_an_isolation_that_was_not_there_is_said() -> None:
    check = {"path": "m.keras", "loaded": True, "equal": True, "reason": None}
    held = {"user": None, "files": "landlock", "network": None, "processes": None}
    ended = {"code": 0, "signal": None, "reason": "completed"}
    record = RunRecord("r", Path("r"), ended, model_check={**check, "isolation": held})
    assert "read without isolation of network: docs/security.md" in summary(record)
    assert "without isolation" not in summary(RunRecord("r", Path("r"), ended, model_check=check))


def test_a_file_in_the_home_folder_does_not_show_the_rest_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "tables.py").write_text("SECRET = open(__file__.replace('tables.py', '.secret')).read()\n")
    (tmp_path / ".secret").write_text("canary")
    (tmp_path / "features.pkl").write_bytes(b"\x80\x04\x8c\x06tables\x8c\x05Table\x93)\x81.")
    request = Request([str(tmp_path / "features.pkl")], ["tables"], tmp_path)
    (found,) = answers(request)
    assert found["loaded"] is False and "canary" not in str(found)
    if found["isolation"]["files"]:
        assert "FileNotFoundError" in found["reason"] or "PermissionError" in found["reason"], found


def test_modules_below_src_are_found(tmp_path: Path) -> None:
    (tmp_path / "src" / "net").mkdir(parents=True)
    (tmp_path / "src" / "net" / "__init__.py").write_text("raise LookupError('net was imported')\n")
    (tmp_path / "features.pkl").write_bytes(b"\x80\x04N.")
    (found,) = answers(Request([str(tmp_path / "features.pkl")], ["net"], tmp_path))
    assert "net was imported" in found["reason"]


@pytest.mark.parametrize("full", ["there", "here"])
def test_a_full_disk_is_one_sentence_for_all_files(folders: tuple[Path, Path], full: str) -> None:
    python = folders[0].parent / "python"
    python.write_text(f"#!/bin/sh\necho '[Errno 28] No space left on device' >&2\nexit {space.STATUS}\n")
    python.chmod(0o755)
    sides = {name: side(folder) for name, folder in zip(("there", "here"), folders, strict=True)}
    sides[full] = replace(sides[full], agent=replace(sides[full].agent, python=str(python)))
    entries = [Entry(name, "file", 1, 0o644, "") for name in ("classes.json", "vocab.txt")]
    answer = check(sides["there"], sides["here"], entries, folders[0].parent)
    assert answer is not None and answer["not_checked"] == "disk-full"
    jsonschema = json.loads(SCHEMA.read_text())["properties"]["model_check"]
    Draft202012Validator(jsonschema).validate(answer)
    (line,) = model_lines(answer)
    where = "on the machine" if full == "there" else "on this computer"
    assert line.startswith(f"classes.json, vocab.txt: not checked: the disk is full ({where}: ")
    assert line.endswith(f"orch pull {folders[0].parent.name} --again") and "Traceback" not in line
