"""Buckets whose requester pays: refused by name, or read at the expense of whoever agrees in the profile.

The toll stands before both emulated clouds: S3 wants the header x-amz-request-payer on every request, Cloud
Storage the project that pays in userProject, and answers 400 "required" without.
"""

from __future__ import annotations

import http.client
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from orchestrator.errors import OrchError, StorageError, StorageFault
from orchestrator.hosts.here import HereHost
from orchestrator.leases.data_ready import require_data
from orchestrator.model import Silent
from orchestrator.profile import load
from orchestrator.session import buckets
from orchestrator.storage import Store, open_store
from orchestrator.sync import fetch
from tests.clouds.signing import new_bucket
from tests.unit import here_cloud
from tests.unit.far_side import agent_at

REFUSED = {"message": "…", "domain": "global", "reason": "required"}


@contextmanager
def toll(target: str) -> Iterator[str]:
    """An endpoint before `target` that lets only those pass who pay."""
    behind = urlsplit(target)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            google = "GOOG" in self.path or self.path.startswith(("/storage/", "/download/"))
            if google and "userProject" not in parse_qs(urlsplit(self.path).query):
                self._answer(400, [], json.dumps({"error": {"code": 400, "errors": [REFUSED]}}).encode())
            elif not google and self.headers.get("x-amz-request-payer") != "requester":
                self._answer(403, [], b"<Error><Code>AccessDenied</Code></Error>")
            else:
                self._pass_on()

        do_HEAD = do_GET

        def do_POST(self) -> None:
            """A login."""
            self._pass_on(self.rfile.read(int(self.headers["Content-Length"])))

        def _pass_on(self, body: bytes = b"") -> None:
            connection = http.client.HTTPConnection(behind.hostname or "", behind.port)
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, text in self.headers.items():
                connection.putheader(name, text)
            connection.endheaders(body)
            answer = connection.getresponse()
            own = ("transfer-encoding", "content-length", "connection")
            heads = [(name, text) for name, text in answer.getheaders() if name.lower() not in own]
            size = answer.getheader("Content-Length") if self.command == "HEAD" else None
            self._answer(answer.status, heads, answer.read(), size)
            connection.close()

        def _answer(
            self, status: int, heads: list[tuple[str, str]], body: bytes, size: str | None = None
        ) -> None:
            self.send_response(status)
            for name, text in heads:
                self.send_header(name, text)
            self.send_header("Content-Length", size or str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(params=["s3", "gs"])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Store]:
    made = open_store(f"{new_bucket(request, monkeypatch, tmp_path)}/data/images")
    made.put("a/1.bin", b"one" * 999)
    made.put("b.bin", b"")
    behind = os.environ.get("STORAGE_EMULATOR_HOST") or os.environ["AWS_ENDPOINT_URL"]
    with toll(behind) as url:
        for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "STORAGE_EMULATOR_HOST"):
            if name in os.environ or name == "AWS_ENDPOINT_URL_S3":
                monkeypatch.setenv(name, url)
        monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "who-pays")
        yield made


def test_who_does_not_agree_to_pay_is_refused_before_anything_is_rented(store: Store, tmp_path: Path) -> None:
    path = here_cloud.project(tmp_path / "p", "", more=f"data:\n  - source: {store.url}\n")
    with pytest.raises(StorageError) as refused:
        require_data(load(path))
    expected = StorageFault.DENIED if store.url.startswith("s3") else StorageFault.REQUESTER_PAYS
    assert refused.value.fault is expected
    assert "requester_pays: true" in f"{refused.value.message} {refused.value.next_command}"


def test_a_machine_reads_at_the_expense_of_who_agrees(store: Store, tmp_path: Path) -> None:
    more = f"data:\n  - source: {store.url}\n    requester_pays: true\n"
    (pin,) = require_data(load(here_cloud.project(tmp_path / "p", "", more=more)))
    again = buckets.pinned(tmp_path / "pin", store.url, requester_pays=True)
    assert again == pin == buckets.pinned(tmp_path / "pin", store.url, requester_pays=True)
    agent = agent_at(tmp_path / "far")
    fetch(HereHost(), agent, pin.objects, "data-0", buckets.linker(pin))
    assert (Path(agent.base) / "trees/data-0/a/1.bin").read_bytes() == b"one" * 999
    buckets.bring(pin, pin.objects, tmp_path / "here", Silent())
    assert (tmp_path / "here/a/1.bin").read_bytes() == b"one" * 999


@pytest.mark.parametrize("store", ["gs"], indirect=True)
def test_without_a_project_that_pays_it_is_asked_for(
    store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT")
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS")
    with pytest.raises(StorageError) as refused:
        buckets.pinned(tmp_path / "pin", store.url, requester_pays=True)
    assert refused.value.fault is StorageFault.REQUESTER_PAYS
    assert "GOOGLE_CLOUD_PROJECT" in str(refused.value.next_command)


def test_local_data_have_no_requester(tmp_path: Path) -> None:
    (tmp_path / "p/images").mkdir(parents=True)
    more = "data:\n  - source: images\n    requester_pays: true\n"
    with pytest.raises(OrchError, match="requester_pays"):
        load(here_cloud.project(tmp_path / "p", "", more=more))
