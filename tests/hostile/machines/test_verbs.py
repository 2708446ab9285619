"""The verbs of a run on a machine that lies: an OrchError within bounded time, and no use of the lie."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestrator import jobs
from orchestrator.errors import FileRefused, HostError, LocalError, MalformedAnswer, OrchError
from orchestrator.hosts.here import HereHost
from orchestrator.leases import joining
from orchestrator.model import Agent, Completed, Host, Job
from orchestrator.stack.runtime_files import lay_out
from tests.hostile.machines.lies import DEEP, FLOOD, ONE_LINE, SILENCE, Lying, put, without

BOUND = 60.0
"""Seconds within which everything ends, on a busy computer."""


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """A base folder with one run that has ended and left a file."""
    base = tmp_path_factory.mktemp("base")
    found = Agent(sys.executable, str(lay_out(base)), str(base))
    jobs.start(HereHost(), found, JOB)
    jobs.follow(HereHost(), found, "r", 0, lambda _: None)
    yield found


JOB = Job("r", ("sh", "-c", "echo hello"), sys.executable, cwd="/")

VERBS: dict[str, Callable[[Host, Agent], Any]] = {
    "start": lambda host, agent: jobs.start(host, agent, JOB),
    "state": lambda host, agent: jobs.state(host, agent, "r"),
    "cancel": lambda host, agent: jobs.cancel(host, agent, "r", 0),
    "outputs": lambda host, agent: jobs.outputs(host, agent, "r"),
}

HARMLESS = {"path": "a", "kind": "file", "size": 1, "mode": 420, "digest": "ab" * 32, "target": ""}

LIES: dict[str, dict[str, Any]] = {
    "nothing": {"instead": b""},
    "prose": {"instead": b"hello\n"},
    "no text": {"instead": b"\xff\xfe\x00" * 100},
    "a list": {"instead": b"[]"},
    "a number": {"instead": b"7"},
    "null": {"instead": b"null"},
    "depth": {"instead": DEEP},
    "a key twice": {"instead": b'{"state": "absent", "entries": [], "state": "absent", "entries": []}'},
    "half": {"instead": b'{"state": "ended", "entries": [{"path"'},
    "an endless answer": {"instead": FLOOD},
    "an endless line": {"instead": ONE_LINE},
    "silence": {"instead": SILENCE},
    "status 255": {"status": 255},
    "a refusal that is none": {"status": 3, "instead": b'{"kind": {"a": 1}, "error": ["x"]}'},
    "a refusal without end": {"status": 3, "instead": b"x" * (1 << 20)},
    "escapes": {"status": 1, "instead": b"\x1b]0;owned\x07\x1b[2J" * 1000},
}

STATES: dict[str, Callable[[Any], Any]] = {
    "no state": without("state"),
    "an unknown state": put("state", to="fine"),
    "ended without an end": put("exit", to=None),
    "running with an end": put("state", to="running"),
    "an end that is a list": put("exit", to=[0]),
    "a status out of range": put("exit", "code", to=1 << 40),
    "a negative status": put("exit", "code", to=-3),
    "a signal out of range": put("exit", "signal", to=1000),
    "a status that is text": put("exit", "code", to="0"),
    "a reason with escapes": put("exit", "reason", to="\x1b[2Jcompleted"),
    "a reason that is a book": put("exit", "reason", to="x" * 100_000),
    "a log of negative length": put("log_bytes", to=-1),
    "a log of endless length": put("log_bytes", to=10**30),
    "a half byte": put("log_bytes", to=0.5),
    "a far future": put("started_at", to=1e300),
    "no number": put("started_at", to=float("nan")),
    "a time that is true": put("ended_at", to=True),
}

LISTS: dict[str, Callable[[Any], Any]] = {
    "no entries": without("entries"),
    "entries that are an object": put("entries", to={}),
    "an entry that is text": put("entries", to=["a"]),
    "an entry without a path": put("entries", to=[without("path")(dict(HARMLESS))]),
    "a negative size": put("entries", to=[{**HARMLESS, "size": -1}]),
    "an endless size": put("entries", to=[{**HARMLESS, "size": 10**40}]),
    "a kind that is none": put("entries", to=[{**HARMLESS, "kind": "\x1b[2J"}]),
    "a mode with more bits": put("entries", to=[{**HARMLESS, "mode": 1 << 20}]),
    "a digest that is none": put("entries", to=[{**HARMLESS, "digest": "../../x"}]),
    "a path of 10,000 characters": put("entries", to=[{**HARMLESS, "path": "a/" * 5000 + "b"}]),
    "an output without a pattern": put("unwritten", to=[{}]),
    "an output of 10,000 characters": put("unwritten", to=[{"pattern": "x" * 10_000}]),
    "an output that is near a list": put("unwritten", to=[{"pattern": "x", "nearest": []}]),
    "a path that cannot be bytes": put("entries", to=[{**HARMLESS, "path": "\ud800"}]),
}


def refused(host: Lying, act: Callable[[Host, Agent], Any], agent: Agent) -> OrchError:
    begun = time.monotonic()
    with pytest.raises(OrchError) as error:
        act(host, agent)
    assert time.monotonic() - begun < BOUND and host.lies
    assert len(error.value.message) < 2000
    assert not set(error.value.message) & {
        chr(code) for code in (*range(9), *range(11, 32), *range(127, 160))
    }
    return error.value


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_survives_every_lie(
    agent: Agent, verb: str, lie: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "_TIMEOUT", 0.5 if lie == "silence" else BOUND)
    error = refused(Lying(verb, **LIES[lie]), VERBS[verb], agent)
    assert isinstance(error, HostError)
    said = error.exists is not None and error.next_command is not None
    assert said or not isinstance(error, MalformedAnswer)


@pytest.mark.parametrize("lie", STATES)
def test_a_run_state_that_cannot_be(agent: Agent, lie: str) -> None:
    assert isinstance(refused(Lying("state", alter=STATES[lie]), VERBS["state"], agent), MalformedAnswer)


@pytest.mark.parametrize("lie", LISTS)
def test_a_listing_that_cannot_be(agent: Agent, lie: str) -> None:
    assert isinstance(refused(Lying("outputs", alter=LISTS[lie]), VERBS["outputs"], agent), MalformedAnswer)


def test_ten_million_entries_are_not_read(agent: Agent) -> None:
    many = ("sh", "-c", 'echo \'{"entries": [\'; yes \'{"path": "a", "kind": "file", "size": 1},\'')
    error = refused(Lying("outputs", instead=many), VERBS["outputs"], agent)
    assert isinstance(error, MalformedAnswer) and "printed more than" in error.message


@pytest.mark.parametrize("flood", [FLOOD, ONE_LINE])
def test_a_flood_beside_a_stream_ends_the_stream(agent: Agent, flood: tuple[str, ...]) -> None:
    """Standard error without end, while the output is awaited."""
    host = Lying("tail", instead=("sh", "-c", 'exec "$@" >&2', "sh", *flood))
    error = refused(host, lambda host, agent: jobs.follow(host, agent, "r", 0, lambda _: None), agent)
    assert isinstance(error, MalformedAnswer)


# ---------------------------------------------------------------- files


@pytest.mark.parametrize("how", ["here", "ssh"])
def test_what_is_no_regular_file_is_not_fetched(
    how: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    from tests.conformance.private_sshd import over_ssh

    host = HereHost() if how == "here" else over_ssh(request.getfixturevalue("server"), tmp_path)
    there, target = tmp_path / "there", tmp_path / "here" / "output.log"
    there.mkdir()
    target.parent.mkdir()
    target.write_text("as it was")
    (there / "zero").symlink_to("/dev/zero")
    (there / "loop").symlink_to("loop")
    (there / "folder").mkdir()
    (there / "sparse").touch()
    (there / "large").touch()
    (there / "larger").touch()
    os.mkfifo(there / "pipe")
    os.truncate(there / "large", shutil.disk_usage(tmp_path).free - (1 << 20))
    os.truncate(there / "larger", shutil.disk_usage(tmp_path).total + 1)
    os.truncate(there / "sparse", 10 << 40)
    begun = time.monotonic()
    for name, kind in (
        ("zero", FileRefused),
        ("loop", FileRefused),
        ("folder", FileRefused),
        ("pipe", FileRefused),
        ("sparse", FileRefused),
        ("larger", FileRefused),
        ("large", LocalError),
        ("absent", HostError),
    ):
        with pytest.raises(kind) as error:
            host.get(str(there / name), target)
        if name in ("sparse", "large", "larger"):
            assert error.value.exists and error.value.next_command
    host.close()
    assert time.monotonic() - begun < BOUND
    assert target.read_text() == "as it was" and [path.name for path in target.parent.iterdir()] == [
        target.name
    ]


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        ("yes", MalformedAnswer),
        ("yes 9 | tr -d '\\n'", MalformedAnswer),
        ("echo -5; yes", MalformedAnswer),
        ("echo 12345; printf abc", FileRefused),
        ("echo 99999999999999999; yes", FileRefused),
        ("exit 0", HostError),
        ("yes >&2", MalformedAnswer),
    ],
)
def test_a_fetch_that_lies(
    server: Any, tmp_path: Path, script: str, kind: type[OrchError], monkeypatch: pytest.MonkeyPatch
) -> None:
    from orchestrator.hosts import ssh
    from tests.conformance.private_sshd import over_ssh

    monkeypatch.setattr(ssh, "_GET", script)
    host, target = over_ssh(server, tmp_path), tmp_path / "home" / "x"
    begun = time.monotonic()
    with pytest.raises(kind):
        host.get("/etc/passwd", target)
    host.close()
    assert time.monotonic() - begun < BOUND and not target.exists()


def test_a_file_that_grows_is_fetched_as_it_was(
    server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from orchestrator.hosts import ssh
    from tests.conformance.private_sshd import over_ssh

    monkeypatch.setattr(ssh, "_GET", "echo 6; yes hello")
    host = over_ssh(server, tmp_path)
    host.get("/anything", tmp_path / "x")
    host.close()
    assert (tmp_path / "x").read_bytes() == b"hello\n"


@pytest.mark.parametrize("noise", ["yes", "yes | tr -d '\\n'"])
def test_a_login_shell_that_never_stops_talking(
    server: Any, tmp_path: Path, noise: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from orchestrator.hosts import command
    from tests.conformance.private_sshd import over_ssh

    monkeypatch.setattr(command, "_BEGIN", noise)
    host = over_ssh(server, tmp_path)
    begun = time.monotonic()
    with pytest.raises(HostError):
        host.run(("true",), timeout=BOUND)
    host.close()
    assert time.monotonic() - begun < BOUND


@pytest.mark.parametrize(
    "said",
    [b"", b"null", b"[]", b"\xff", b'{"reached": 1}', b'{"reached": [0], "heard": [], "ahead": {"0": "x"}}'],
)
def test_a_machine_that_lies_about_whom_it_reaches(said: bytes) -> None:
    session = SimpleNamespace(
        ledger=SimpleNamespace(lease=lambda: SimpleNamespace(rank=0)),
        agent=Agent("python3", "/runtime", "/base"),
        host=SimpleNamespace(run=lambda *_, **__: Completed((), 0, said, b"")),
        machine=SimpleNamespace(name="m-1"),
    )
    with pytest.raises(MalformedAnswer):
        joining.apart([cast("Any", session)], ["127.0.0.1"])


def test_a_rank_that_is_none_is_passed_over() -> None:
    assert joining.problems([joining.Met((), (), {"-1": 9.0, "x": 9.0}, {})]) == []
