"""What a spot machine hears of its end, from a metadata service that answers as the clouds do."""

from __future__ import annotations

import http.server
import json
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from orchestrator import jobs
from orchestrator.hosts.here import HereHost
from orchestrator.model import Agent, Job
from orchestrator.runtime.agent import notices
from orchestrator.runtime.agent.ending import Facts, explain
from orchestrator.runtime.agent.supervise import _time_to_save
from orchestrator.stack.runtime_files import lay_out

ACTION = "/latest/meta-data/spot/instance-action"
REBALANCE = "/latest/meta-data/events/recommendations/rebalance"
GOOGLE = "/computeMetadata/v1/instance/"
SAVES = """\
import pathlib, signal, sys, time
def save(*_):
    pathlib.Path("saved").write_text("yes")
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("training", flush=True)
time.sleep(60)
"""


@dataclass
class Service:
    """`said`: path → body. Version 2 of AWS's: no answer without the token that is valid now."""

    said: dict[str, str] = field(default_factory=dict)
    token: str = "first"
    url: str = ""

    def answer(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, str]:
        if path.startswith("/computeMetadata"):
            if headers.get("metadata-flavor") != "Google":
                return 403, ""
        elif (method, path) == ("PUT", "/latest/api/token"):
            return (200, self.token) if "x-aws-ec2-metadata-token-ttl-seconds" in headers else (400, "")
        elif headers.get("x-aws-ec2-metadata-token") != self.token:
            return 401, ""
        return (200, self.said[path]) if path in self.said else (404, "")


@pytest.fixture
def service() -> Iterator[Service]:
    made = Service()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, body = made.answer(self.command, self.path, headers)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

        do_PUT = do_GET

        def log_message(self, *arguments: object) -> None:
            """Nothing on our standard error."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield made
    server.shutdown()
    server.server_close()


def test_aws_announces_the_end(service: Service) -> None:
    listener = notices.Listener("aws", service.url)
    assert listener.notice() is None
    service.said[ACTION] = json.dumps({"action": "terminate", "time": "2026-11-20T02:40:00Z"})
    notice = listener.notice()
    assert notice == notices.Notice("AWS ends this spot machine at 2026-11-20T02:40:00Z.", 1795142400.0)


def test_a_recommendation_of_aws_is_no_end(service: Service) -> None:
    service.said[REBALANCE] = json.dumps({"noticeTime": "2026-11-20T02:40:00Z"})
    notice = notices.Listener("aws", service.url).notice()
    assert notice is not None
    assert notice.ends_at is None
    assert "likely" in notice.text


def test_a_token_that_is_too_old_is_replaced(service: Service) -> None:
    listener = notices.Listener("aws", service.url)
    assert listener.notice() is None
    service.token = "second"
    service.said[ACTION] = json.dumps({"action": "terminate", "time": "2026-11-20T02:40:00Z"})
    assert [listener.notice() is None for _ in range(2)] == [True, False]


def test_google_says_so_as_it_happens(service: Service) -> None:
    listener = notices.Listener("gcp", service.url)
    service.said[GOOGLE + "preempted"] = "FALSE"
    service.said[GOOGLE + "maintenance-event"] = "NONE"
    assert listener.notice() is None
    service.said[GOOGLE + "maintenance-event"] = "TERMINATE_ON_HOST_MAINTENANCE"
    maintained = listener.notice()
    assert maintained is not None
    assert (maintained.ends_at, "TERMINATE_ON_HOST" in maintained.text) == (None, True)
    service.said[GOOGLE + "preempted"] = "TRUE"
    before = time.time()
    taken = listener.notice()
    assert taken is not None
    assert taken.ends_at is not None
    assert before + 30 <= taken.ends_at <= time.time() + 30


@pytest.mark.parametrize("cloud", notices.CLOUDS)
def test_silence_says_nothing(cloud: str) -> None:
    assert notices.Listener(cloud, "http://127.0.0.1:9").notice() is None


def test_part_of_what_is_left_is_kept_for_fetching() -> None:
    assert _time_to_save(120) == 90
    assert _time_to_save(30) == 20
    assert _time_to_save(-5) == 2


@pytest.mark.parametrize(("code", "signal"), [(0, None), (1, None), (None, 15)])
def test_however_the_job_ends_then_it_was_taken_back(code: int | None, signal: int | None) -> None:
    said = explain(Facts(code, signal, machine_ends=("preempted", "AWS ends this spot machine at noon.")))
    assert said["reason"] == "preempted"
    assert "at noon" in said["detail"]
    assert (f"status {code}" in said["detail"]) == (code is not None)


def test_a_run_is_told_saves_and_ends_as_preempted(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    host, agent = HereHost(), Agent(sys.executable, str(lay_out(base)), str(base))
    jobs.start(host, agent, Job("r", ("python", "-c", SAVES), sys.executable, cwd=str(tmp_path)))
    log = base / "runs/r/output.log"
    while "training" not in log.read_text():
        time.sleep(0.05)
    notices.publish(str(base), notices.Notice("It may end.", None))
    while "orch: It may end." not in log.read_text():
        time.sleep(0.05)
    assert jobs.state(host, agent, "r").state == "running"
    notices.publish(str(base), notices.Notice("It ends now.", time.time() + 30))
    while (state := jobs.state(host, agent, "r")).state == "running":
        time.sleep(0.05)
    assert state.exit is not None
    assert (state.exit.reason, state.exit.code) == ("preempted", 0)
    assert (tmp_path / "saved").read_text() == "yes"
    lines = [json.loads(line) for line in (base / "runs/r/trace.jsonl").read_text().splitlines()]
    told = [line["text"] for line in lines if line["event"] == "notice"]
    assert told == ["It may end.", "It ends now."]
