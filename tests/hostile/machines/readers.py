"""Everything in orchestrator/ that reads what a run left, or what another program answered."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.api import comparing
from orchestrator.errors import OrchError
from orchestrator.leases.gpu_ready import parse_listing
from orchestrator.model import Completed, Exit, RunRecord, Silent, files
from orchestrator.model.answers import Malformed, parsed
from orchestrator.model.outcomes import ExitReason
from orchestrator.parity import facts, interventions, lines, numbers, recording
from orchestrator.profiling import trace
from orchestrator.reads import opened
from orchestrator.replay import fork_server, recipe, replayer
from orchestrator.runs import (
    archives,
    bookmarks,
    checkpoints,
    collect,
    curves,
    inputs,
    kept_code,
    mlflow,
    model_check,
    record_file,
    sbom,
)
from orchestrator.runs import logs as run_logs
from orchestrator.runs.stored import StoredRun
from orchestrator.session import buckets
from orchestrator.session.project import Project
from orchestrator.session.session import parse_timer
from orchestrator.sizing import result
from orchestrator.stack import wheels
from orchestrator.stack.attest import parse_fingerprint
from orchestrator.stack.interpreter import parse as parse_interpreter
from orchestrator.stalls import file_reads, measured, scratch_run
from orchestrator.storage.memory import MemoryStore
from orchestrator.sync import cache

MOST = 1 << 24

Read = Callable[[Path], Any]


@dataclass(frozen=True)
class Reader:
    """`read` is given the file `name` in a folder of its own; it raises one of `errors`, with a next command
    where that is for people, or returns something harmless. `bytes_only`: it is given bytes, not a path.
    """

    name: str
    read: Read
    errors: tuple[type[Exception], ...] = ()
    bytes_only: bool = False


def _mapping(found: Any) -> None:
    assert isinstance(found, Mapping)


def _keras(path: Path) -> dict[str, str]:
    entry = {"path": str(path), "bytes": path.stat().st_size}
    return interventions._keras_settings(entry)


class _Answered:
    """A command that has ended."""

    def __init__(self, argv: tuple[str, ...], said: bytes) -> None:
        self._end = Completed(argv, 0, said, b"")

    def wait(self, _timeout: float) -> Completed:
        return self._end


def _model_check(path: Path) -> Any:
    full = model_check._no_room("on the machine", "one")
    answers = model_check._results(_Answered((), path.read_bytes()), ["a"], full)
    assert len(answers) == 1 and not answers[0]["loaded"]
    return answers


def _passed_on(path: Path) -> int:
    return run_logs.passed_on(path, 0, lambda _: None)


def _stored(path: Path, key: str, **others: bytes) -> StoredRun:
    """A run in a store that has the file as `key`."""
    store = MemoryStore("memory://garbage")
    store.put(f"runs/one/{key}", path.read_bytes() if path.is_file() else b"")
    for name, content in others.items():
        store.put(f"runs/one/{name}.json", content)
    return StoredRun(store, "one")


def _stored_copy(path: Path) -> Any:
    for place in ("1", "slot-0"):
        _stored(path, f"attempts/1/checkpoints/{place}/manifest.json").newest_checkpoint()


def _stored_results(path: Path) -> Any:
    exit_ = collect.exit_json(Exit(0, None, ExitReason.COMPLETED, "It ended."))
    record = json.dumps(RunRecord("one", "/", exit_).as_json())
    return _stored(path, "attempts/1/outputs.json", run=record.encode()).fetch_results(path.parent / "home")


def _lines_of(path: Path) -> Any:
    return lines.read(path.read_bytes().decode("utf-8", "replace"), 1)


def _record(path: Path) -> Any:
    return comparing._record(Project.at(path.parent), path.parent)


def _copied(folder: Path) -> None:
    target = folder.with_name(f"{folder.name} copied")
    collect.copy_folder(folder, target)
    for copy in target.rglob("*"):
        assert copy.is_symlink() or copy.is_dir() or copy.stat().st_size <= 100 << 20


def _hashes(path: Path) -> Any:
    kept = cache._place(path.parent, path.parent)
    path.replace(kept)
    return cache.load(path.parent, path.parent)


class _Mlflow:
    """A server that takes whatever it is sent."""

    def upload(self, _artifacts: str, _name: str, content: Any, _size: int) -> None:
        content.read(MOST)


def _to_mlflow(path: Path) -> None:
    exit_ = collect.exit_json(Exit(0, None, ExitReason.COMPLETED, "It ended."))
    record, project = RunRecord("one", str(path.parent), exit_), Project.at(path.parent)
    end = mlflow._End(project, None, record, _Mlflow(), Silent())  # type: ignore[arg-type]
    end._upload("mlflow-artifacts:/1")


def _copied_log(path: Path) -> None:
    with open(path.with_name("log copied"), "wb") as target:
        run_logs._copy(path, target, 3)


LEFT_OUT = (OSError, ValueError, RecursionError)
"""A file of metrics that raises one of these is left out of the page."""

READERS: dict[str, Reader] = {
    "runs.bookmarks._read": Reader("read-r", bookmarks._read),
    "runs.collect._numbers": Reader("metrics.json", collect._numbers),
    "runs.record_file.read": Reader("run.json", lambda p: record_file.read(p.parent), (OrchError,)),
    "api.comparing._record": Reader("run.json", _record, (OrchError,)),
    "replay.replayer._lines": Reader("unseeded", replayer._lines),
    "replay.fork_server._answered": Reader(
        "line",
        lambda p: fork_server._answered(fork_server.Ended, p.read_bytes()),
        (fork_server.ForkServerLost,),
        bytes_only=True,
    ),
    "session.buckets._read": Reader("data-0.json", buckets._read, (OrchError,)),
    "runs.kept_code.kept_tree": Reader("code/tree.json", lambda p: kept_code.kept_tree(p.parent.parent)),
    "runs.kept_code.kept_profile": Reader(
        "code/profile.yaml", lambda p: kept_code.kept_profile(p.parent.parent)
    ),
    "runs.kept_code._unpacked": Reader("code/files.tar.gz", lambda p: _mapping(kept_code._unpacked(p))),
    "runs.archives.members": Reader("m.keras", archives.members),
    "runs.inputs._kept": Reader("code.json", lambda p: inputs._kept(p.parent, p.name)),
    "runs.logs._copy": Reader("output.log", _copied_log),
    "runs.mlflow._upload": Reader("output.log", _to_mlflow),
    "runs.logs._opened": Reader("output.log", _passed_on, (OrchError,)),
    "runs.curves._of_file": Reader("metrics.csv", curves._of_file, LEFT_OUT),
    "runs.curves._json_lines": Reader("metrics.jsonl", curves._of_file, LEFT_OUT),
    "runs.curves._printed_last": Reader("output.log", curves._printed_last),
    "runs.sbom._versions": Reader("sbom.cdx.json", sbom._versions),
    "runs.model_check._results": Reader("answer", _model_check, bytes_only=True),
    "reads.opened._of_workers": Reader(
        "opened-1.jsonl", lambda p: list(opened._of_workers(p.parent)), (OrchError,)
    ),
    "runs.collect.copy_file": Reader("trace.jsonl", lambda p: collect.copy_file(p, p.with_name("copy"))),
    "runs.collect.copy_folder": Reader("a", lambda p: _copied(p.parent)),
    "stalls.scratch_run._refused": Reader("refused", scratch_run._refused),
    "replay.recipe._bytes": Reader("module.py", lambda p: recipe._bytes(p, 1 << 20)),
    "replay.recipe.read_recipe": Reader("rerun.json", lambda p: recipe.read_recipe(p.parent), (OrchError,)),
    "model.answers.parsed": Reader(
        "answer", lambda p: parsed(p.read_bytes(), most=MOST), (Malformed,), bytes_only=True
    ),
    "model.files.first_bytes": Reader("refused", lambda p: files.first_line(p)),
    "model.files.last_bytes": Reader("output.log", lambda p: files.last_bytes(p, 100)),
    "model.files.regular_bytes": Reader("a", lambda p: files.regular_bytes(p, MOST), (Malformed,)),
    "model.files.sha256_of": Reader("a", lambda p: files.sha256_of(p, MOST)),
    "parity.facts._read": Reader("environment.json", facts.read_facts, (Malformed,)),
    "parity.lines.read": Reader("steps.jsonl", _lines_of, bytes_only=True),
    "parity.interventions._keras_settings": Reader("keras.json", _keras),
    "parity.numbers.read_npy": Reader("a.npy", numbers.read_npy, (ValueError,)),
    "parity.recording._lines": Reader("steps.jsonl", recording._lines),
    "parity.recording._object": Reader("status.json", recording._object, (Malformed,)),
    "stalls.file_reads._table": Reader("1.reads", lambda p: file_reads.reads_of(p.parent), (Malformed,)),
    "stalls.measured.read_result": Reader("feeding.json", measured.read_result, (Malformed,)),
    "sizing.result.read_sizes": Reader("size.json", result.read_sizes, (Malformed,)),
    "profiling.trace.read": Reader("trace.jsonl", trace.read),
    "profiling.trace._line": Reader("line", lambda p: trace._line(p.read_bytes()), bytes_only=True),
    "leases.gpu_ready.parse_listing": Reader(
        "answer", lambda p: parse_listing(p.read_bytes(), "m"), (Malformed, OrchError), bytes_only=True
    ),
    "session.session.parse_timer": Reader(
        "answer", lambda p: parse_timer(p.read_bytes(), "m"), (OrchError,), bytes_only=True
    ),
    "runs.checkpoints._read": Reader("manifest.json", lambda p: checkpoints._read(p.parent, 1)),
    "runs.stored._listed": Reader("manifest.json", _stored_copy),
    "runs.stored.ended": Reader("state.json", lambda p: _stored(p, "attempts/1/state.json").ended(1)),
    "runs.stored._files": Reader("outputs.json", _stored_results, (OrchError,)),
    "runs.stored.put_log": Reader(
        "output.log", lambda p: StoredRun(MemoryStore("memory://log"), "one").put_log(1, p.parent)
    ),
    "stack.attest.parse_fingerprint": Reader(
        "answer", lambda p: parse_fingerprint(p.read_bytes()), (Malformed,), bytes_only=True
    ),
    "stack.interpreter.parse": Reader(
        "answer", lambda p: parse_interpreter(p.read_bytes()), (Malformed,), bytes_only=True
    ),
    "stack.wheels._read_kept": Reader("wheels.json", wheels._read_kept),
    "sync.cache.load": Reader("hashes.json", _hashes),
}
"""Each is put through every piece of garbage."""

ELSEWHERE = {
    "jobs._ask": "test_verbs.py::test_every_verb_survives_every_lie",
    "jobs._refusal": "test_verbs.py::test_every_verb_survives_every_lie",
    "jobs.follow": "test_verbs.py::test_a_flood_beside_a_stream_ends_the_stream",
    "leases.joining._meet": "test_verbs.py::test_a_machine_that_lies_about_whom_it_reaches",
    "sync.far.far_scan": "test_trees.py::test_a_listing_that_is_none",
    "sync.talk.hear": "test_trees.py::test_sending_to_a_machine_that_lies",
    "sync.talk.__init__": "test_trees.py::test_sending_to_one_that_never_ends",
    "hosts.here.get": "test_verbs.py::test_what_is_no_regular_file_is_not_fetched",
    "stalls.scratch_run._change": "test_leaves.py::test_a_fix_shows_no_file_outside_of_the_project",
}
"""Readers whose answers come by a channel: the test of this folder that lies to them."""

LOCK, WRITE, USER, OURS = "a lock", "it writes", "a file that the user names", "a file of ours, no run's"
SERVER = "the answer of a server: tests/unit/runs/test_mlflow.py::test_a_server_that_is_none_changes_nothing"
NOT_OF_A_RUN = {
    "runs.model_check._begun": "a command, and no file",
    "runs.model_check.started_ahead": "a command, and no file", "report.page.html._asset": OURS,
    "training.resume._checkpoints_of": USER,
    "session.ssh_access.include": USER, "session.ssh_access.is_included": USER,
    "stack.lock._beside": USER, "stack.local._source": USER, "stack.relock._header_words": USER,
    "stack.own_code._dependencies": USER, "stack.own_code._requests": USER, "stack.locking.make_lock": USER,
    "replay.copier._file": USER, "replay.sandbox._put": USER, "replay.sandbox._touch": OURS,
    "stalls.scratch_folder._fill": USER,
    "replay.fork_server.__init__": WRITE, "api.declaring._written": USER, "session.connect._alone": LOCK,
    "session.project.ignore_state": OURS, "runs.lint_check._read": USER,
    "runs.lint_check.report_once": OURS, "reads.literals._strings": USER, "reads.literals._values": USER,
    "session.owner._read": OURS, "session.owner._noted": OURS, "api.schemas.schema": OURS,
    "api.first_steps._lacking": USER,
    "reads.sent._read": USER,
    "sizing.profile_change.change_profile": USER, "sizing.profile_change.write_minimums": USER,
    "replay.standard_input.__init__": WRITE, "api.terraform._text": USER, "session.work_locks._file": LOCK,
    "session.work_locks._signed": LOCK, "hosts.here.put": USER, "hosts.hostkeys.pins": OURS,
    "hosts.hostkeys.repin": OURS, "hosts.identity.public_key": OURS, "hosts.ssh._write_file": USER,
    "hosts.atomic.atomic_file": WRITE, "hosts.atomic.flush_folder": WRITE,
    "session.team_url.remembered": OURS,
    "model.files.open_to_write": WRITE, "model.files.write_new": WRITE, "runs.kept_code._packed": WRITE,
    "runs.events._write": WRITE, "runs.notify._told": OURS,
    "runs.notify.post": WRITE, "runs.mlflow_notes._kept": OURS,
    "runs.program._unknown": "a command, and no file",
    **{f"runs.mlflow_server.{name}": SERVER for name in ("_send", "_call", "_refusal")},
    "runs.kept_code._found": USER, "runs.kept_code.candidates": USER, "runs.kept_code._content": USER,
    "training.repeat._text": USER, "training.identity.request_of": USER,
    "stack.bootstrap.far_script": OURS, "stack.bundle._is_binary": USER,
    "stack.bundle._relocated": USER, "stack.download._download": WRITE, "stack.local.alone": LOCK,
    "leases.budget.alone": LOCK, "stack.gpu_lock.place_of": USER, "stack.local._requires_python": USER,
    "stack.lock.read_lock": USER, "stack.lock.read_toml": USER,
    "stack.pack._add": USER, "stack.pack.send": WRITE,
    "stack.pythons.compiled_for": USER, "stack.pythons.required_python": USER,
    "stack.runtime_files.lay_out": OURS, "stack.runtime_files.runtime_digest": OURS,
    "stack.runtime_files.runtime_members": OURS, "stack.wheels._compile": USER,
    "stack.wheels._named_indexes": USER, "stack.wheels._offered": USER, "stack.wheels.index_hints": USER,
    "sync.ignore._read": USER, "sync.pull._alone": LOCK, "sync.pull._flush": WRITE,
    "sync.push._opener": USER,
}  # fmt: skip
"""What a run or a machine does not write, or what this computer opens for writing."""

WITHIN = {
    "model.answers.decoded", "model.files.open_regular", "model.files.first_line", "runs.archives._digest",
    "runs.archives._digest_of_settings",
}  # fmt: skip
"""Parts of readers above."""

GARBAGE: dict[str, bytes] = {
    "empty": b"",
    "prose": b"hello\n",
    "binary": b"\xff\xfe\x00\x80" * 1000,
    "half": b'{"v": 1, "event": "header", "argv": [',
    "a number": b"7",
    "a list": b"[]",
    "a text": b'"x"',
    "null": b"null",
    "an empty object": b"{}",
    "NaN": b'{"v": NaN, "end": NaN, "python": NaN, "run_id": NaN, "code": Infinity}',
    "wrong types": json.dumps(
        {"v": 1, "event": "header", "run_id": [], "exit": 7, "argv": {}, "files": 1, "sizes": "x", "end": []}
    ).encode(),
    "a huge number": b'{"v": ' + b"9" * 5000 + b"}",
    "many keys": b"",  # see write_garbage
    "deep": b"[" * 100_000 + b"]" * 100_000,
    "deep objects": b'{"v":' * 100_000,
    "a lone surrogate": b'{"a": "\\ud800", "end": "\\udc80", "run_id": "\\ud800", "code": "\\ud800"}',
    "NUL": b'{"v": 1, "argv": ["\\u0000"], "cwd": "/\\u0000", "python": "\\u0000"}',
    "a header of no array": b"\x93NUMPY\x01\x00" + struct.pack("<H", 40) + b"(" * 40,
    "an array of nothing": b"\x93NUMPY\x01\x00" + struct.pack("<H", 2) + b"{}",
}
LARGE = ("many keys", "deep", "deep objects")
"""Those that take a reader long: in turn for each, and all of them at night."""


def write_garbage(folder: Path) -> None:
    """A file of each content; a million keys are made here, for none of the others needs to wait for them."""
    for kind, content in GARBAGE.items():
        (folder / kind).write_bytes(content)
    (folder / "many keys").write_bytes(
        b"{" + ",".join(map('"{}":0'.format, range(1_000_000))).encode() + b"}"
    )
