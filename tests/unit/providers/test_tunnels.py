"""Connections through a program: what it says when it fails, that it ends with the connection."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import paramiko
import pytest

from orchestrator.errors import Fault, HostError, ProviderError
from orchestrator.hosts import connect, ssh
from orchestrator.hosts.identity import public_key
from orchestrator.hosts.wire import connected
from orchestrator.model import Endpoint
from orchestrator.providers.tunnels import Tunnels, require

GREETS = (
    sys.executable,
    "-c",
    "import sys; sys.stdout.write('SSH-2.0-x\\r\\n'); sys.stdout.flush(); input()",
)
REFUSES = (sys.executable, "-c", "import sys; sys.exit('ERROR: 4003: failed to connect to backend')")
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGtQzVn0VdkT0Wm2yQ0nXUkPSpPkXyBzQkq5dlqCqk0a"


def test_it_leads_somewhere_once_a_server_greets() -> None:
    assert Tunnels().is_open("m", GREETS)
    assert not Tunnels().is_open("m", REFUSES)


def test_what_never_opens_is_told_in_the_program_s_words() -> None:
    tunnels = Tunnels(patience_s=0)
    with pytest.raises(ProviderError, match="4003: failed to connect to backend") as told:
        tunnels.is_open("m", REFUSES)
    assert told.value.fault is Fault.UNKNOWN
    assert "costs" in str(told.value.exists)


def test_a_program_that_is_missing_is_named_with_how_to_get_it() -> None:
    require({"sh": "never"}, "The tunnel")
    with pytest.raises(ProviderError, match="no-such-program") as told:
        require({"sh": "never", "no-such-program": "apt install it"}, "The tunnel")
    assert told.value.next_command == "apt install it"


def test_the_program_ends_with_the_connection(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    keeps = (
        f"import os, pathlib, time; pathlib.Path({str(mark)!r}).write_text(str(os.getpid())); time.sleep(60)"
    )
    wire = connected(Endpoint("m", 22, "u", (KEY,), (sys.executable, "-c", keeps)), 5)
    while not (mark.exists() and mark.read_text()):
        time.sleep(0.01)
    wire.close()
    assert not Path(f"/proc/{mark.read_text()}").exists()


@pytest.mark.parametrize(
    ("proxy", "words"), [(REFUSES, "4003"), (("no-such-program", "x"), "not installed here")]
)
def test_ssh_says_why_there_is_no_way(tmp_path: Path, proxy: tuple[str, ...], words: str) -> None:
    public_key(tmp_path / "id", "me")
    endpoint = Endpoint("m", 22, "u", (KEY,), proxy)
    known = tmp_path / "known"
    with pytest.raises(HostError, match=words):
        connect(endpoint, identity=tmp_path / "id", known_hosts=known, machine_id="m", timeout=5)


def test_a_handshake_that_returns_without_a_connection_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """paramiko's `start_client` looks twice: a connection that ends between the looks is returned as one."""
    begin = ssh._Transport.start_client

    def looks_too_early(transport: ssh._Transport, timeout: float) -> None:
        try:
            begin(transport, timeout=timeout)
        except (paramiko.SSHException, OSError, EOFError) as error:
            transport.saved_exception = error

    monkeypatch.setattr(ssh._Transport, "start_client", looks_too_early)
    public_key(tmp_path / "id", "me")
    endpoint = Endpoint("m", 22, "u", (KEY,), REFUSES)
    known = tmp_path / "known"
    with pytest.raises(HostError, match=r"did not answer.*4003"):
        connect(endpoint, identity=tmp_path / "id", known_hosts=known, machine_id="m", timeout=2)


def test_a_server_that_only_greets_did_not_answer(tmp_path: Path) -> None:
    public_key(tmp_path / "id", "me")
    endpoint = Endpoint("m", 22, "u", (KEY,), GREETS)
    known = tmp_path / "known"
    with pytest.raises(HostError, match="did not answer"):
        connect(endpoint, identity=tmp_path / "id", known_hosts=known, machine_id="m", timeout=1)


def test_what_a_program_said_is_told_although_the_last_attempt_had_no_time(tmp_path: Path) -> None:
    """The second attempt, with less than half a second left, is still starting when time ends."""
    public_key(tmp_path / "id", "me")
    said = tmp_path / "said"
    once = f"[ -e {said} ] && exec sleep 60; touch {said}; sleep 1; echo 4003 >&2; exit 1"
    endpoint = Endpoint("m", 22, "u", (KEY,), ("/bin/sh", "-c", once))
    known = tmp_path / "known"
    with pytest.raises(HostError, match=r"did not answer.*4003"):
        connect(endpoint, identity=tmp_path / "id", known_hosts=known, machine_id="m", timeout=1.5)
    assert said.exists()
