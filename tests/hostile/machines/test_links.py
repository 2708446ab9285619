"""Links and pipes in a run's folder where orch writes: nothing is written through them, nothing waits."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestrator.hosts.here import HereHost
from orchestrator.model import Agent, Completed, Entry, RunRecord
from orchestrator.replay import recipe
from orchestrator.runs import collect, inputs, model_check, record_file
from orchestrator.runs.follow import LocalLog

ORCHESTRATOR = Path(__file__).parents[3] / "orchestrator"


class _Silent(HereHost):
    def run(self, argv: Any, **_: Any) -> Completed:
        return Completed(tuple(argv), 1, b"", b"")


def _follow(run: Path) -> None:
    with LocalLog(run / "output.log") as kept:
        kept.begin(0)
        kept.add(b"of the machine", 0)


def _model_check(run: Path) -> None:
    side = model_check.Side(_Silent(), Agent("python", "/r", "/b"), str(run), "/c")
    model_check.check(side, side, [Entry("m.keras", "file", 1, 0o644, "")], run)


def _copy(run: Path) -> None:
    source = run.with_name("source")
    source.mkdir()
    (source / "a").write_text("of the machine")
    collect.copy_file(source / "a", run / "trace.jsonl")
    collect.copy_folder(source, run / "observe")


def _inputs(run: Path) -> None:
    sent = SimpleNamespace(code={"train.py": "0"}, data_files={"data/a.csv": "0"})
    inputs.keep_inputs(run, cast(inputs.Inputs, sent))


def _content(run: Path) -> None:
    recipe.keep_content(run, "0" * 64, b"of the machine")


def _record(run: Path) -> None:
    record_file.write(RunRecord("r", run, {"code": 0, "signal": None, "reason": "completed"}))


WRITES: dict[str, tuple[Callable[[Path], None], tuple[str, ...]]] = {
    "follow": (_follow, ("output.log",)),
    "model check": (_model_check, ("model-check.json",)),
    "copy": (_copy, ("trace.jsonl", "observe")),
    "inputs": (_inputs, ("code.json", "code.json.part", "data.json", "data.json.part")),
    "content": (_content, (recipe.KEPT, f"{recipe.KEPT}/{'0' * 64}")),
    "record": (_record, ("run.json",)),
}


@pytest.mark.parametrize("what", WRITES)
@pytest.mark.parametrize("to", ["file", "folder", "nothing"])
def test_nothing_is_written_through_a_link(tmp_path: Path, what: str, to: str) -> None:
    write, names = WRITES[what]
    for number, name in enumerate(names):
        top = tmp_path / str(number)
        run, other = top / "run", top / "other"
        (run / name).parent.mkdir(parents=True)
        if to == "file":
            other.write_text("the user's")
        elif to == "folder":
            other.mkdir()
        (run / name).symlink_to(other)
        write(run)
        left = {"file": "the user's", "folder": [], "nothing": None}[to]
        assert content(other) == left


@pytest.mark.parametrize("what", WRITES)
def test_a_pipe_holds_nobody_up(tmp_path: Path, what: str) -> None:
    write, names = WRITES[what]
    for number, name in enumerate(names):
        run = tmp_path / str(number) / "run"
        if name == recipe.KEPT:
            continue  # a folder of ours
        (run / name).parent.mkdir(parents=True)
        os.mkfifo(run / name)
        write(run)


def content(path: Path) -> object:
    if path.is_dir():
        return [each.name for each in path.iterdir()]
    return path.read_text() if path.exists() else None


# ---------------------------------------------------------------- that there is no other way

WHOLE = "they go through hosts.atomic, model.files.open_to_write, or O_EXCL"
PLAIN_WRITES = {"write_text", "write_bytes"}
MODES = {"w", "wb", "a", "ab", "a+", "w+", "r+", "r+b"}
ROOMS = (
    "api", "stalls", "training", "leases", "runs", "sizing", "reads", "replay", "session", "sync", "jobs.py",
)  # fmt: skip
NOT_IN_A_RUN = {
    "runs/stored.py": "a scratch folder",
    "replay/fork_server.py": "the diary of a fork server, in a scratch folder",
    "session/connect.py": "a lock, in the state folder",
    "runs/lint_check.py": "a note of ours, in the state folder",
    "session/owner.py": "the state folder",
    "sizing/profile_change.py": "a scratch folder",
    "leases/budget.py": "a lock, in the state folder",
    "session/work_locks.py": "locks, in the state folder",
}


def plain_writes(tree: ast.AST) -> Iterator[int]:
    """Lines that open a path for writing, and would follow a link in its place."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        words = [each.value for each in (*node.args, *(k.value for k in node.keywords)) if constant(each)]
        flags = ast.dump(node)
        opens = bool(MODES & set(words)) or ("O_CREAT" in flags and "O_NOFOLLOW" not in flags)
        if name in PLAIN_WRITES or (name == "open" and opens):
            yield node.lineno


def constant(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def test_whoever_writes_what_a_run_left_follows_no_link() -> None:
    found = {}
    for room in ROOMS:
        top = ORCHESTRATOR / room
        for path in [top] if top.suffix else sorted(top.rglob("*.py")):
            lines = list(plain_writes(ast.parse(path.read_text())))
            if lines:
                found[path.relative_to(ORCHESTRATOR).as_posix()] = lines
    assert set(found) <= set(NOT_IN_A_RUN), f"{found}: {WHOLE}"
    assert set(NOT_IN_A_RUN) <= set(found), "these write nothing any more"
