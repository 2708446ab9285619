"""--quiet, --verbose, and the log file that a command leaves."""

from __future__ import annotations

import io
import json
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.cli import command_log
from orchestrator.cli.command_log import CommandLog, Loudness, logged
from orchestrator.cli.progress import Lines, Moving, listen
from orchestrator.errors import Busy
from orchestrator.model.progress import Noticing, doing, notice
from tests.forked_orch import orch


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("ORCH_STATE_HOME", str(tmp_path / "state"))
    yield tmp_path / "state" / "log"
    logger = logging.getLogger("orchestrator")
    logger.handlers.clear()
    logger.propagate = True


def printed(loudness: Loudness, lines: type[Lines] = Lines) -> str:
    stream = io.StringIO()
    to = lines(stream, CommandLog("up", {}, loudness))
    listen(to)
    to.say("said")
    notice(to, "noticed")
    with doing(to, "an operation"):
        logging.getLogger("orchestrator.hosts.ssh").debug("a command of %s", "m-1")
    to.transfer("code", 5, 5)
    return stream.getvalue()


@pytest.mark.parametrize("lines", [Lines, Moving])
def test_a_quiet_command_prints_notices_alone(lines: type[Lines]) -> None:
    assert printed(Loudness.QUIET, lines).replace("\r\x1b[K", "") == "noticed\n"


def test_a_verbose_command_prints_durations_and_what_the_rooms_log() -> None:
    text = printed(Loudness.VERBOSE)
    assert text.startswith("said\nnoticed\n  a command of m-1\n  an operation: 0.0")
    assert text.endswith(" s\n  code: 5 B\n")
    assert printed(Loudness.NORMAL) == "said\nnoticed\n  code: 5 B\n"


@pytest.mark.parametrize("loudness", Loudness)
def test_the_log_has_everything_however_loud_the_command_is(loudness: Loudness, state: Path) -> None:
    printed(loudness)
    (file,) = state.iterdir()
    text = file.read_text()
    for each in ("said", "noticed", "a command of m-1", "an operation: ", "code: 5 B"):
        assert f"  {each}" in text
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_progress_that_has_no_notices_is_told_them_all_the_same() -> None:
    class Old:
        def __init__(self) -> None:
            self.lines: list[str] = []

        def say(self, text: str) -> None:
            self.lines.append(text)

        def transfer(self, label: str, done: int, total: int) -> None: ...

    old = Old()
    assert not isinstance(old, Noticing)
    notice(old, "it was left running")
    assert old.lines == ["it was left running"]


def test_how_a_command_ended_is_in_its_log(state: Path) -> None:
    log = CommandLog("train", {"run_id": "one", "as_json": True, "lease": None})
    with pytest.raises(Busy), logged(log):
        Lines(io.StringIO(), log).say("begun")
        raise Busy("another run")
    text = next(state.iterdir()).read_text()
    assert "command: orch train run_id=one as_json\n" in text
    assert text.endswith(f"exit code {Busy('').exit_code}\n")


def test_what_a_machine_says_cannot_forge_the_log_of_a_terminal(state: Path) -> None:
    Lines(io.StringIO(), CommandLog("up", {})).say("a\x1b[2Jb")
    assert "\x1b" not in next(state.iterdir()).read_text()


def test_a_log_that_cannot_be_written_stops_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ORCH_STATE_HOME", str(tmp_path / "file" / "below"))
    stream = io.StringIO()
    log = CommandLog("up", {})
    Lines(stream, log).say("said")
    log.end(0)
    assert stream.getvalue() == "said\n" and log.path is None


def test_old_logs_are_removed(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_log, "KEPT", 3)
    state.mkdir(parents=True)
    for number in range(5):
        (state / f"20200101-00000{number}-up-1.log").write_text("")
    CommandLog("up", {}).line("said")
    assert [path.name[:8] for path in sorted(state.iterdir())][:2] == ["20200101"] * 2
    assert len(list(state.iterdir())) == 3


PROFILE = """version: 1
name: quiet
cloud: local
resources: {cpus: 1, memory: 512MiB}
max_duration: 10m
train: {command: [python, train.py]}
"""


def test_a_command_is_quiet_and_its_log_has_no_secret(state: Path, tmp_path: Path) -> None:
    (tmp_path / "orch.yaml").write_text(PROFILE)
    environ = {**os.environ, "ORCH_STATE_HOME": str(state.parent)}
    argv = ("run", "orch.yaml", "--run-id", "one", "--set", "train.env.TOKEN=canary-7", "--quiet")
    done = orch(*argv, "--json", cwd=tmp_path, env=environ)
    error = json.loads(done.stdout)["error"]
    for path in state.glob("*") if state.is_dir() else ():
        assert "canary-7" not in path.read_text()
    assert "canary-7" not in done.stderr + done.stdout
    assert done.returncode == error["exit_code"] != 0
    assert not done.stderr.strip()


def test_a_usage_error_names_no_log(state: Path, tmp_path: Path) -> None:
    done = orch("train", cwd=tmp_path, env={**os.environ, "ORCH_STATE_HOME": str(state.parent)})
    assert done.returncode == 2
    assert "log:" not in done.stderr
    assert not state.exists()
