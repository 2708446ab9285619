"""Whoever a profile names is told once of a run's end; what goes wrong with that changes nothing else."""

from __future__ import annotations

import json
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import orchestrator as orch
from orchestrator.errors import Busy, Fault, OutOfMemory, ProfileError, ProviderError
from orchestrator.model import RunRecord
from orchestrator.profile import load
from orchestrator.runs import notify
from orchestrator.runs.notify import NotSent, notified, post
from orchestrator.session.project import Project
from tests.said import Said
from tests.unit import here_cloud


class Hook(ThreadingHTTPServer):
    """Answers posts with `answers` in turn, then with 200."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.answers: list[Callable[[BaseHTTPRequestHandler], None]] = []
        self.came: list[dict[str, Any]] = []
        self.asked = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/services/T0/secret"


class _Answer(BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked += 1
        if self.server.answers:
            self.server.answers.pop(0)(self)
            return
        self.server.came.append(body)
        status(200)(self)

    do_GET = do_POST

    def log_message(self, *_: object) -> None:
        pass


def status(code: int, **headers: str) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(code)
        for name, value in headers.items():
            request.send_header(name, value)
        request.send_header("Content-Length", "0")
        request.end_headers()

    return answer


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hook]:
    monkeypatch.setattr(notify, "_PAUSES", (0.0, 0.0))
    monkeypatch.setattr(notify, "_SECONDS", 1.0)
    server = Hook()
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    monkeypatch.setenv("HOOK", server.url)
    yield server
    server.shutdown()
    server.server_close()


class Told:
    """A project with a profile whose `notify` is given, and what became of a block."""

    def __init__(self, folder: Path, notify_: str) -> None:
        here_cloud.project(folder, "print(1)", more=f"notify: {notify_}\n")
        self.project, self.profile, self.said = Project(folder), load(folder / "orch.yaml"), Said()

    def end(self, outcome: RunRecord | Exception) -> None:
        try:
            with notified(self.project, self.profile, "one", self.said) as ended:
                if isinstance(outcome, Exception):
                    raise outcome
                assert ended(outcome) is outcome
        except Exception as error:
            assert error is outcome

    def record(self, reason: str = "completed", attempts: int = 1, **more: Any) -> RunRecord:
        exit_: Any = {"code": 0, "signal": None, "reason": reason, "detail": None}
        each: Any = [{"number": number + 1} for number in range(attempts)]
        return RunRecord("one", str(self.project.run("one")), exit_, attempts=each, **more)


@pytest.fixture
def told(tmp_path: Path, hook: Hook) -> Told:
    del hook
    return Told(tmp_path / "p", "{webhook: {from_env: HOOK}}")


def test_a_success_is_told_once_with_what_came_of_it(told: Told, hook: Hook) -> None:
    record = told.record(metrics={"accuracy": 0.98765, "note": None}, parity={"verdict": "IDENTICAL"})
    told.end(record)
    told.end(record)
    (body,) = hook.came
    assert (body["schema"], body["event"], body["run_id"]) == ("orch.notification/1", "finished", "one")
    assert body["text"] == "tiny: one finished. accuracy 0.9877"
    assert (body["metrics"]["accuracy"], body["verdict"], body["error"]) == (0.98765, "IDENTICAL", None)
    assert told.said.lines == []


def test_a_failure_says_what_is_left_and_what_to_do(told: Told, hook: Hook) -> None:
    error = OutOfMemory("It had 2 GiB.", exists="The machine runs on, at $1.20/h.", next_command="orch size")
    error.record = told.record("out_of_memory")
    told.end(error)
    (body,) = hook.came
    said = "It had 2 GiB. The machine runs on, at $1.20/h. Next: orch size"
    assert body["text"] == f"tiny: one failed (out-of-memory). {said}"
    assert (body["event"], body["error"]["code"], body["error"]["exit_code"]) == (
        "failed",
        "out-of-memory",
        10,
    )
    told.end(told.record("out_of_memory"))  # as `pull` sees it later
    assert len(hook.came) == 1


def test_every_attempt_has_an_end_of_its_own(told: Told, hook: Hook) -> None:
    for attempts in (1, 1, 2):
        told.end(told.record("failed", attempts))
    told.end(told.record("completed", 2))
    assert [body["event"] for body in hook.came] == ["failed", "failed", "finished"]
    assert len({body["id"] for body in hook.came}) == 3


def test_what_stops_a_call_before_its_run_is_told_once_for_each_kind(told: Told, hook: Hook) -> None:
    for fault in (Fault.CAPACITY, Fault.CAPACITY, Fault.QUOTA):
        told.end(ProviderError(fault, "None is free."))
    assert [body["error"]["code"] for body in hook.came] == ["cloud-capacity", "cloud-quota"]
    assert hook.came[0]["exit"] is None


def test_what_is_no_end_is_not_told(told: Told, hook: Hook) -> None:
    told.end(Busy("Another command is at work."))
    told.end(told.record("running"))
    with pytest.raises(KeyboardInterrupt), notified(told.project, told.profile, "one", told.said):
        raise KeyboardInterrupt
    assert hook.came == []


def test_only_what_was_asked_for_is_told(tmp_path: Path, hook: Hook) -> None:
    told = Told(tmp_path / "p", "{on: [failed], webhook: {from_env: HOOK}}")
    told.end(told.record())
    assert hook.came == []


def test_a_call_that_was_killed_while_it_told_is_followed_by_one_that_tells(
    told: Told, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(notify, "post", killed)
        told.end(told.record())
    told.end(told.record())
    assert len(hook.came) == 1


@pytest.mark.parametrize("code", [500, 503, 429])
def test_a_webhook_that_stumbles_is_asked_again(told: Told, hook: Hook, code: int) -> None:
    hook.answers = [status(code), status(code)]
    told.end(told.record())
    assert len(hook.came) == 1 and told.said.lines == []


def hang(request: BaseHTTPRequestHandler) -> None:
    del request
    time.sleep(2)


def drip(request: BaseHTTPRequestHandler) -> None:
    request.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n" + b"x" * 100_000)


def nonsense(request: BaseHTTPRequestHandler) -> None:
    request.wfile.write(b"\0" * 70_000)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (status(404), "status 404"),
        (status(500), "status 500"),
        (status(302, Location="file:///etc/passwd"), "status 302"),
        (status(307, Location="http://127.0.0.1:1/other"), "status 307"),
        (hang, "did not answer"),
        (nonsense, "did not answer"),
    ],
)
def test_a_webhook_that_does_not_take_it_is_said_and_tried_by_the_next_call(
    told: Told, hook: Hook, answer: Callable[[BaseHTTPRequestHandler], None], why: str
) -> None:
    hook.answers = [answer] * 3
    told.end(told.record())
    (line,) = told.said.lines
    assert line.startswith("The notification that one finished was not sent: the webhook") and why in line
    assert "secret" not in line, "the address may be a secret"
    hook.answers = []
    told.end(told.record())
    assert len(hook.came) == 1


def test_an_answer_without_end_is_not_read(told: Told, hook: Hook) -> None:
    hook.answers = [drip]
    begun = time.monotonic()
    told.end(told.record())
    assert told.said.lines == [] and time.monotonic() - begun < 30


def test_nobody_listens(hook: Hook) -> None:
    del hook
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(NotSent, match="did not answer: Connection refused"):
        post(f"http://127.0.0.1:{port}/secret", b"{}")


def test_a_variable_that_is_not_set_is_refused_before_anything_is_done(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOOK")
    with (
        pytest.raises(ProfileError, match=r"orch.yaml:\d+:\d+: notify.webhook: the variable HOOK is not set"),
        notified(told.project, told.profile, "one", told.said),
    ):
        pytest.fail("the block was begun")


def test_for_a_run_that_began_before_it_is_said_and_nothing_fails(
    told: Told, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOOK")
    record = told.record()
    with notified(told.project, told.profile, "one", told.said, began=True) as ended:
        assert ended(record) is record
    assert "the variable HOOK is not set here" in told.said.lines[0]
    monkeypatch.setenv("HOOK", hook.url)
    told.end(record)
    assert len(hook.came) == 1


def test_a_command_has_the_same_on_its_standard_input(tmp_path: Path) -> None:
    told = Told(tmp_path / "p", "{command: [./tell.sh, now]}")
    script = told.project.root / "tell.sh"
    script.write_text("#!/bin/sh\ncat > told.$1\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    told.end(told.record())
    body = json.loads((told.project.root / "told.now").read_text())
    assert body["text"] == "tiny: one finished." and told.said.lines == []


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("#!/bin/sh\necho no mail >&2; exit 3\n", "status 3: no mail"),
        ("#!/bin/sh\nexec sleep 100\n", "took longer than 6 s"),
        (None, "could not be started: No such file"),
    ],
)
def test_a_command_that_fails_is_said(tmp_path: Path, hook: Hook, script: str | None, why: str) -> None:
    told = Told(tmp_path / "p", "{command: ./tell.sh, webhook: {from_env: HOOK}}")
    if script is not None:
        (told.project.root / "tell.sh").write_text(script)
        (told.project.root / "tell.sh").chmod(0o755)
    told.end(told.record())
    assert why in told.said.lines[0]
    assert len(hook.came) == 1, "the webhook is told all the same"


def test_neither_the_address_nor_what_is_told_is_kept(told: Told, hook: Hook) -> None:
    told.end(told.record(metrics={"accuracy": 0.5}))
    kept = b"".join(path.read_bytes() for path in told.project.root.rglob("*") if path.is_file())
    assert b"T0/secret" not in kept and hook.url.encode() not in kept


@pytest.mark.processes
@pytest.mark.slow
def test_run_tells_of_a_failure_and_of_the_success_that_follows(
    tmp_path: Path, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    here_cloud.cloud(tmp_path / "machines", monkeypatch, prepared=True)
    profile = here_cloud.project(
        tmp_path / "p", "raise SystemExit(3)", more="notify: {webhook: {from_env: HOOK}}\n"
    )
    with pytest.raises(orch.RunFailed):
        orch.run(profile, run_id="one", folder=profile.parent)
    (profile.parent / "train.py").write_text("open('metrics.json', 'w').write('{\"accuracy\": 0.5}')")
    for _ in range(2):
        orch.run(profile, run_id="one", folder=profile.parent)
    assert [body["event"] for body in hook.came] == ["failed", "finished"]
    assert hook.came[0]["error"]["code"] == "run-failed" and "costs money" in hook.came[0]["text"]
    assert hook.came[1]["metrics"] == {"accuracy": 0.5}
