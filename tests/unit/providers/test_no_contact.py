"""The timer of a machine at which no client arrives, carried out where `shutdown` only leaves a mark."""

from __future__ import annotations

import http.server
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from orchestrator.hosts.here import HereHost
from orchestrator.model import Agent
from orchestrator.providers import no_contact
from orchestrator.providers.gcp.startup import startup_script
from orchestrator.runtime import rundir
from orchestrator.stack.runtime_files import lay_out

pytestmark = pytest.mark.skipif(
    Path("/run/systemd/system").exists(), reason="would arm this computer's own timer"
)


def program(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def boot(tmp_path: Path, seconds: int | None) -> Path:
    """Run what the first boot runs; the mark that is left at the machine's end."""
    mark = tmp_path / "ended"  # with no seconds the timer never fires
    program(tmp_path, "shutdown", f'echo "$@" >{mark}')
    for name in ("poweroff", "halt", "systemctl"):
        program(tmp_path, name, "exit 1")
    text = no_contact.script(str(tmp_path / "orch")).replace(no_contact.PROGRAM, str(tmp_path / "program"))
    wait = "exit" if seconds is None else f"sleep {seconds}"
    text = text.replace(f"sleep {no_contact.SECONDS}", wait).replace("sleep 60", "exit")
    subprocess.run(["sh", "-c", text], env=path(tmp_path), check=True, timeout=30)
    return mark


def path(folder: Path) -> dict[str, str]:
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def fires(tmp_path: Path) -> None:
    """As the timer does."""
    subprocess.run(["sh", str(tmp_path / "program")], env=path(tmp_path), check=False, timeout=30)


def test_a_machine_to_which_nobody_comes_ends(tmp_path: Path) -> None:
    mark = boot(tmp_path, 1)
    limit = time.monotonic() + 60
    while not mark.exists():
        assert time.monotonic() < limit
        time.sleep(0.05)
    assert no_contact.SECONDS == 1800


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[None]:
    """A watcher of the real runtime, which ends nothing."""
    base = tmp_path / "orch"
    base.mkdir()
    agent = Agent(sys.executable, str(lay_out(base)), str(base))
    argv = agent.argv("watch", agent.base, "--left", "0", "--idle", "0", "--", "true")
    done = HereHost().run(argv, timeout=60)
    assert done.returncode == 0, done.stderr
    yield
    known = rundir.read_json(str(base / "watcher.json"))
    assert known
    os.kill(known["pid"], 9)


@pytest.mark.usefixtures("watched")
def test_a_machine_whose_watcher_runs_is_left_to_it(tmp_path: Path) -> None:
    mark = boot(tmp_path, None)
    fires(tmp_path)
    assert not mark.exists()


@pytest.mark.parametrize("left", ['{"pid": 4194304}', '{"pid": 1}', "", "no json"])
def test_a_watcher_of_before_the_boot_is_none(tmp_path: Path, left: str) -> None:
    """Its process is gone, or is another program now."""
    (tmp_path / "orch").mkdir()
    (tmp_path / "orch/watcher.json").write_text(left)
    mark = boot(tmp_path, None)
    fires(tmp_path)
    assert mark.exists()


def test_a_machine_with_runs_is_left_to_its_deadline(tmp_path: Path) -> None:
    """It was restarted: results that nobody fetched may be on it only."""
    (tmp_path / "orch/runs/one").mkdir(parents=True)
    mark = boot(tmp_path, None)
    fires(tmp_path)
    assert not mark.exists()


# ---------------------------------------------------------------- Google keeps what powered itself off


class Metadata(http.server.BaseHTTPRequestHandler):
    """As much of Google's metadata server and of its API as a machine needs that deletes itself."""

    identity = True
    deleted: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        known = {"zone": "projects/7/zones/us-central1-a", "name": "orch-tiny"}
        if self.identity:
            known["service-accounts/default/token"] = '{"access_token":"ya29.x","expires_in":3599}'
        name = self.path.partition("/instance/")[2]
        told = known.get(name) if self.headers["Metadata-Flavor"] == "Google" else None
        self.send_response(200 if told else 404)
        self.end_headers()
        self.wfile.write((told or "").encode())

    def do_DELETE(self) -> None:
        allowed = self.headers["Authorization"] == "Bearer ya29.x"
        self.deleted.append(self.path if allowed else "refused")
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("identity", [True, False])
def test_a_machine_of_google_with_an_identity_deletes_itself(
    identity: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """cloud.google.com/compute/docs/instances/limit-vm-runtime: a stop clears Google's own timer."""
    monkeypatch.setattr(Metadata, "identity", identity)
    monkeypatch.setattr(Metadata, "deleted", [])
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Metadata)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    here = f"http://127.0.0.1:{server.server_port}"
    script = startup_script("", gpu=False, mark="orch-tiny-1")
    text = script.partition("<<'END-OF-DELETE-SELF'\n")[2].partition("END-OF-DELETE-SELF\n")[0]
    for there in ("http://metadata.google.internal", "https://compute.googleapis.com"):
        text = text.replace(there, here)
    subprocess.run(["sh", "-c", text], check=False, timeout=60)
    server.shutdown()
    server.server_close()
    path = "/compute/v1/projects/7/zones/us-central1-a/instances/orch-tiny"
    assert Metadata.deleted == ([path] if identity else [])
