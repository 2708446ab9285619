"""environment.json and feeding.json, spoilt at every leaf: refused with a reason, or harmless."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from orchestrator import parity
from orchestrator.errors import MalformedAnswer
from orchestrator.model import Conclusion
from orchestrator.parity.changes import changes, versions
from orchestrator.parity.places import named_alike, named_by_variables
from orchestrator.parity.recording import Recording, read
from orchestrator.reads.opened import read_opened
from orchestrator.report.profile import profile_text
from orchestrator.stalls import scratch_run
from orchestrator.stalls.scratch_folder import Scratch
from tests.hostile.machines.test_records import DIGEST, STATUS, STEPS, places, recorded, right

FILE = {
    "name": "data/1.csv", "path": "/p/data/1.csv", "bytes": 3, "changed": 1.5, "sha256": DIGEST,
    "whole": True, "way": "python", "made": False, "cache": False,
}  # fmt: skip
ENVIRONMENT: dict[str, Any] = {
    "python": "3.11.7",
    "platform": {"system": "Linux", "machine": "x86_64", "libc": "2.35"},
    "versions": {"numpy": "1.26"},
    "cpu": {"count": 2, "installed": 2, "affinity": [0, 1], "flags": ["avx2"], "model": "x"},
    "argv": ["--seed", "1"],
    "script": "train.py",
    "program": {"name": "train.py", "sha256": DIGEST},
    "environment": {"TF_X": "1"},
    "set_late": ["TF_X"],
    "modules": {"train.py": DIGEST},
    "host": {"name": "h", "asked": True},
    "files": {"list": [FILE], "left_out": 0, "folders": ["/p"]},
    "rng": {"python": "ab", "keras_seed": 1},
    "locale": {
        "categories": {"LC_CTYPE": "C"}, "decimal_point": ".", "preferred_encoding": "u",
        "filesystem_encoding": "u", "utf8_mode": False,
    },
    "timezone": {"TZ": None, "names": ["UTC", "UTC"], "utc_offsets": [0, 0]},
    "hashing": {"randomized": True, "seed": "random", "sample": -5},
    "folder": {"case_sensitive": True},
    "tensorflow": {
        "intra_op_threads": 0, "inter_op_threads": 0, "deterministic_ops": False, "onednn": True,
        "tf32": True, "devices": ["CPU:0"], "jit": "", "soft_placement": True, "functions_eager": False,
        "build": {"a": "b"},
    },
    "threads": {"intra": 2, "inter": 2},
    "strategy": {"class": "S", "replicas": 1},
    "datasets": [{"deterministic": None, "threads": 1}],
    "keras": {
        "module": "keras", "backend": "tensorflow", "policy": "float32", "floatx": "float32",
        "image_data_format": "l",
    },
    "models": [{"name": "m", "jit_compile": False, "run_eagerly": False, "steps_per_execution": 1}],
    "compiled": [
        {"name": "m", "loss": "mse", "loss_weights": None, "metrics": ["a"], "weighted_metrics": None},
    ],
    "losses": [{"class": "L", "config": {}}],
    "optimizers": [{"class": "SGD", "config": {"lr": 0.1}}],
}  # fmt: skip
SETTINGS = (
    ("rng",), ("datasets", 0), ("losses", 0), ("optimizers", 0, "config"), ("tensorflow", "jit"),
    ("tensorflow", "build"), *(("compiled", 0, name) for name in ("loss", "loss_weights", "metrics")),
    ("compiled", 0, "weighted_metrics"),
)  # fmt: skip
"""Of any shape, as the framework has it: bounded, not typed."""

_WINDOW = {
    "round": 0, "steps": 9, "first": 0.1, "opened": 1, "threads": 3, "connections": 0, "wall": 0.1,
    "cpu": 0.1, "waited": 0.0, "device": 5, "asked": 5, "calls": 2, "faults": 0, "network": 0, "machine": 0.2,
}  # fmt: skip
FEEDING: dict[str, Any] = {
    "v": 1,
    "windows": [
        {**_WINDOW, "mode": mode, "round": number, "wall": wall}
        for mode, wall in (
            ("synthetic", 0.1), ("cached", 0.1), ("warm", 0.4), ("cold", 0.8), ("pull", 0.3),
            ("pull cold", 0.7), ("base", 0.8), ("fix cache", 0.1),
        )
        for number in (0, 1)
    ],
    "notes": ["n"],
    "loop": "fit",
    "source": {"source": "PyDataset", "source_name": "P", "workers": 1, "processes": False},
    "steps_per_call": 1,
    "tensorflow": "2.16",
    "cores": 2,
    "gpus": 0,
    "calls": [
        {"call": "shuffle", "num_parallel_calls": None, "buffer_size": 9, "operations": ["DecodePng"],
         "elements": 9000, "site": ["/p/train.py", 2]},
        {"call": "map", "num_parallel_calls": 1, "private_threadpool": 2},
    ],
    "steps": 9,
    "batch_bytes": 100,
    "batch": 4,
    "files": 3,
    "file_bytes": 30,
    "pipeline": {"batches": 9, "nodes": [
        {"name": "Root", "n": 9, "s": 0.1, "bytes": 1, "buffered": 0, "copies": 1, "inputs": [1]},
        {"name": "Map", "n": 99, "s": 0.3, "inputs": [], "parallelism": 1, "buffer": 2, "python": False,
         "draws": None},
    ]},
    "stalls": True,
    "base": "cold",
    "fixes": [{
        "name": "cache", "edits": [{"file": "/p/train.py", "line": 1, "call": "map", "after": ".cache()"}],
        "parity": {"same": "order", "batches": 3, "why": ""}, "elements": 5, "bytes": 9, "files": 1,
        "folder": "/x", "cores": 2, "parallel": 2, "rate": 5, "calls": 1, "threads": 2, "above": ["batch"],
    }],
    "cardinality": 30,
}  # fmt: skip

WRONG: Sequence[Any] = (
    True, -(10**30), 10**30, 10**400, 1e308, float("nan"), float("inf"), "x", "x" * 300_000, "\ud800",
    "\x1b[2J\x1b]0;owned\x07", [], {}, [[]], [None], {"a": 1}, None,
)  # fmt: skip
_MANY = "".join(map(', "{}": ""'.format, range(1_000_000))).encode()
NOT_JSON = (
    b"", b"hello", b"\xff\xfe\x00", b"7", b"[]", b'"x"', b"[" * 200_000, b'{"a":' * 200_000,
    b'{"a": 1, "a": 1}', b'{"files": {"list": [' + b"{}," * 200_000 + b"{}]}}",
    b'{"modules": {"": ""%s}, "windows": [0%s]}' % (_MANY, b", 0" * 10**6),
    b'{"argv": ["x"%s], "notes": ["x"%s]}' % ((b', "x"' * 199_999,) * 2),
)  # fmt: skip


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    """A hang ends as a failure; nothing here is timed."""
    before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it hangs"))
    signal.alarm(500)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def spoil(value: Any, place: Sequence[Any], wrong: Any) -> Any:
    """A copy of `value` with `wrong` at `place`."""
    found = json.loads(json.dumps(value))
    at = found
    for key in place[:-1]:
        at = at[key]
    at[place[-1]] = wrong
    return found


def written(wrong: Any) -> bytes:
    return json.dumps(wrong).encode()


LEAVES = [path for path in places(ENVIRONMENT) if path]
MEASURED = [
    path for path in places(FEEDING) if path and (path[0] != "windows" or path[1:2] in ((), (0,), (4,)))
]


def environment(top: Path, data: bytes) -> Recording:
    run = recorded(top, right(STEPS), json.dumps(STATUS).encode())
    (run / "observe" / "environment.json").write_bytes(data)
    return read(run)


@pytest.mark.parametrize("place", LEAVES, ids=str)
def test_every_leaf_of_environment_json(tmp_path: Path, place: tuple[Any, ...]) -> None:
    good = environment(tmp_path / "good", written(ENVIRONMENT))
    assert good.steps and good.environment["files"]["list"] == [FILE]
    refusals = 0
    for wrong in WRONG:
        found = environment(tmp_path / "bad", written(spoil(ENVIRONMENT, place, wrong)))
        verdict = parity.judge(good, found)
        if found.steps:
            use(good.environment, found.environment)
            continue
        refusals += 1
        assert verdict.verdict == Conclusion.NOT_COMPARED and "environment.json" in verdict.detail
        assert verdict.fix and len(verdict.detail) < 1000
    free = any(place[: len(each)] == each for each in SETTINGS)
    assert refusals >= (3 if free else 8)


def use(a: Any, b: Any) -> None:
    """What compares the facts of two runs."""
    for left, right_ in (named_alike(a, b), named_alike(b, a)):
        changes(named_by_variables(left), named_by_variables(right_))
        versions(left, right_)


@pytest.mark.parametrize("data", NOT_JSON, ids=lambda data: repr(data[:20]))
def test_environment_json_that_is_none(tmp_path: Path, data: bytes) -> None:
    found = environment(tmp_path, data)
    assert not found.steps and "environment.json" in found.why and len(found.why) < 500
    if b"argv" not in data and b"modules" not in data:  # which are nothing to what reads opened files
        with pytest.raises(MalformedAnswer) as error:
            read_opened(tmp_path / "observe")
        assert error.value.exists and "rm -r" in str(error.value.next_command)


@pytest.mark.parametrize("kind", ["zero", "loop", "folder", "pipe", "sparse"])
@pytest.mark.parametrize("name", ["environment.json", "status.json", "steps.jsonl"])
def test_what_lies_there_is_no_regular_file(tmp_path: Path, name: str, kind: str) -> None:
    run = recorded(tmp_path, right(STEPS), json.dumps(STATUS).encode())
    instead(run / "observe" / name, kind)
    found = read(run)
    assert not found.steps and name in found.why


def instead(path: Path, kind: str) -> None:
    """Something else in the place of a file."""
    path.unlink(missing_ok=True)
    if kind == "zero":
        path.symlink_to("/dev/zero")
    elif kind == "loop":
        path.symlink_to(path.name)
    elif kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.touch()
        os.truncate(path, 10 << 40)


def measured(home: Path, data: bytes) -> scratch_run.Profiled:
    home.mkdir(parents=True, exist_ok=True)
    (home / "feeding.json").write_bytes(data)
    return judged(home)


def judged(home: Path) -> scratch_run.Profiled:
    scratch = Scratch(home.parent / "project", Path("/p"))
    return scratch_run.read(home, "r", ("python",), {"reason": "completed"}, scratch)


@pytest.mark.parametrize("place", MEASURED, ids=str)
def test_every_leaf_of_feeding_json(tmp_path: Path, place: tuple[Any, ...]) -> None:
    assert measured(tmp_path / "good", written(FEEDING)).found is not None
    refusals = 0
    for wrong in WRONG:
        try:
            found = measured(tmp_path / "bad", written(spoil(FEEDING, place, wrong)))
        except MalformedAnswer as error:
            refusals += 1
            assert error.exists and error.next_command and "feeding.json" in error.message
            assert error.message.isprintable() and len(error.message) < 1000
            continue
        assert json.dumps(found.as_json()) and profile_text(found.as_json())
    assert refusals >= 8


@pytest.mark.parametrize("data", NOT_JSON, ids=lambda data: repr(data[:20]))
def test_feeding_json_that_is_none(tmp_path: Path, data: bytes) -> None:
    if data.startswith(b'{"files"'):
        data = data.replace(b"files", b"fixes", 1)
    with pytest.raises(MalformedAnswer):
        measured(tmp_path, data)


@pytest.mark.parametrize("kind", ["zero", "loop", "folder", "pipe", "sparse"])
def test_feeding_json_that_is_no_regular_file(tmp_path: Path, kind: str) -> None:
    instead(tmp_path / "feeding.json", kind)
    with pytest.raises(MalformedAnswer):
        judged(tmp_path)


@pytest.mark.parametrize(
    "file", ["/p/../../secret.py", "/p/link.py", "/etc/hostname", "/p/pipe.py", "/p/zero.py"]
)
def test_a_fix_shows_no_file_outside_of_the_project(tmp_path: Path, file: str) -> None:
    project = tmp_path / "a" / "project"
    project.mkdir(parents=True)
    (tmp_path / "secret.py").write_text("x.map(f)\n")
    (project / "link.py").symlink_to(tmp_path / "secret.py")
    (project / "zero.py").symlink_to("/dev/zero")
    os.mkfifo(project / "pipe.py")
    (project / "train.py").write_text("x.map(f)\n")
    place = ("fixes", 0, "edits", 0, "file")
    good = measured(tmp_path / "a" / "good", written(spoil(FEEDING, place, "/p/train.py")))
    assert good.change and "+x.map(f).cache()" in good.change
    assert measured(tmp_path / "a" / "bad", written(spoil(FEEDING, place, file))).change is None
