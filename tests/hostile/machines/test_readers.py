"""Every reader of what a run or a machine writes, and every garbage: the error that it names, or nothing."""

from __future__ import annotations

import ast
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.errors import OrchError
from orchestrator.model import Agent
from orchestrator.replay.fork_server import ForkServer, ForkServerLost
from tests.hostile.machines.readers import (
    ELSEWHERE,
    GARBAGE,
    LARGE,
    NOT_OF_A_RUN,
    READERS,
    WITHIN,
    Reader,
    write_garbage,
)
from tests.nightly import NIGHTLY

ORCHESTRATOR = Path(__file__).parents[3] / "orchestrator"
ROOMS = (
    "api", "stalls", "training", "leases", "runs", "sizing", "reads", "replay", "session",
    "parity", "profiling", "sync", "stack", "hosts", "report", "plan", "model", "jobs.py",
)  # fmt: skip
CALLS = {
    "loads", "read_text", "read_bytes", "open", "fdopen", "parsed", "decoded", "regular_bytes",
    "open_regular",
    "copy2", "copyfile", "copytree", "copyfileobj",
}  # fmt: skip


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    """A hang ends as a failure; nothing here is timed."""
    before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it hangs"))
    signal.alarm(300)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def garbage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of each content; the large ones are written once."""
    folder = tmp_path_factory.mktemp("garbage")
    write_garbage(folder)
    return folder


def contents(name: str) -> list[str]:
    """What a reader meets: of the large contents one, in turn; all of them at night."""
    turn = LARGE[list(READERS).index(name) % len(LARGE)]
    return [kind for kind in GARBAGE if NIGHTLY or kind not in LARGE or kind == turn]


def put_through(reader: Reader, path: Path) -> None:
    """An error that was promised, complete, or a result."""
    try:
        reader.read(path)
    except reader.errors as error:
        assert len(str(error)) < 1000 and str(error).isprintable()
        if isinstance(error, OrchError):
            assert error.next_command and error.exists


@pytest.mark.parametrize("name", READERS)
def test_no_content_breaks_a_reader(tmp_path: Path, garbage: Path, name: str) -> None:
    reader = READERS[name]
    for kind in contents(name):
        path = tmp_path / kind / reader.name
        path.parent.mkdir(parents=True)
        os.link(garbage / kind, path)
        put_through(reader, path)


@pytest.mark.parametrize("name", [name for name, each in READERS.items() if not each.bytes_only])
def test_no_file_that_is_none_breaks_a_reader(tmp_path: Path, name: str) -> None:
    reader = READERS[name]
    for kind in ("pipe", "zero", "loop", "folder", "sparse"):
        path = tmp_path / kind / reader.name
        path.parent.mkdir(parents=True)
        instead(path, kind)
        if name == "parity.interventions._keras_settings" and kind == "loop":
            continue  # its test of the size comes first, see _keras
        put_through(reader, path)


def instead(path: Path, kind: str) -> None:
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "zero":
        path.symlink_to("/dev/zero")
    elif kind == "loop":
        path.symlink_to(path.name)
    elif kind == "folder":
        path.mkdir()
    else:
        path.touch()
        os.truncate(path, 100 << 20)


SAYS = {
    "prose": "out.write(b'hello\\n')",
    "a flood without an end of line": "[out.write(b'x' * 65536) for _ in range(1000)]",
    "more than it was asked": 'out.write(b\'{"ready": [], "seconds": 0}\\n\' * 2)',
    "wrong types": 'out.write(b\'{"ready": 7, "seconds": 0}\\n\')',
    "nothing, and a binary diary": "sys.stderr.buffer.write(b'\\xff\\x1b[2J' * 100000)",
}


@pytest.mark.parametrize("said", SAYS)
def test_a_fork_server_that_says_something_else_is_lost(tmp_path: Path, said: str) -> None:
    (tmp_path / "enter.py").write_text(f"import sys\nout = sys.stdout.buffer\n{SAYS[said]}\nout.flush()\n")
    agent = Agent(sys.executable, str(tmp_path), str(tmp_path))
    server = ForkServer(agent, sys.executable, (), dict(os.environ), tmp_path / "diary")
    with pytest.raises(ForkServerLost) as error:
        server.ready(time.monotonic() + 200)
    server.close()
    assert str(error.value).isprintable() and len(str(error.value)) < 1000


def readers_in(path: Path) -> Iterator[str]:
    """The functions of a module that open or parse something."""
    module = ".".join(path.relative_to(ORCHESTRATOR).with_suffix("").parts)
    for function in ast.walk(ast.parse(path.read_text())):
        if isinstance(function, ast.FunctionDef) and any(map(is_a_read, ast.walk(function))):
            yield f"{module}.{function.name}"


def is_a_read(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    called = node.func
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return name in CALLS


def test_every_reader_is_known() -> None:
    tops = [ORCHESTRATOR / room for room in ROOMS]
    files = [file for top in tops for file in ([top] if top.suffix else sorted(top.rglob("*.py")))]
    found = {name for file in files for name in readers_in(file)}
    through = {"api.comparing._record", "replay.replayer._lines"}
    known = {*READERS, *ELSEWHERE, *NOT_OF_A_RUN, *WITHIN}
    assert not found - known, "a new reader: put it through garbage in readers.py"
    assert not known - found - through - WITHIN, "these read nothing any more"


def test_readers_that_are_tested_elsewhere_are() -> None:
    here = Path(__file__).parent
    for where in ELSEWHERE.values():
        file, _, test = where.partition("::")
        assert f"def {test}(" in (here / file).read_text()
