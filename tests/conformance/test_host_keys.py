"""Host keys: an unverified machine gets no byte, and a pinned key never changes silently."""

from __future__ import annotations

import base64
import hashlib
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import paramiko
import pytest

from orchestrator.errors import HostKeyError
from orchestrator.hosts import connect
from orchestrator.model import Endpoint
from tests.conformance import private_sshd


class Recorder(paramiko.ServerInterface):
    """An impostor that would take anything, and notes what it is given."""

    def __init__(self) -> None:
        self.received: list[str] = []

    def get_allowed_auths(self, username: str) -> str:
        self.received.append(f"user {username}")
        return "publickey,password"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:  # noqa: ARG002
        self.received.append(f"key {username}")
        return paramiko.AUTH_SUCCESSFUL

    def check_auth_none(self, username: str) -> int:
        self.received.append(f"none {username}")
        return paramiko.AUTH_SUCCESSFUL

    def check_channel_request(self, kind: str, chanid: int) -> int:  # noqa: ARG002
        self.received.append(f"channel {kind}")
        return paramiko.OPEN_SUCCEEDED


@pytest.fixture
def impostor() -> Iterator[tuple[int, Recorder, str]]:
    key = paramiko.ECDSAKey.generate()
    recorder = Recorder()
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                sock = listener.accept()[0]
            except OSError:
                return
            transport = paramiko.Transport(sock)
            transport.add_server_key(key)
            try:
                transport.start_server(server=recorder)
                recorder.received.append("handshake")
                transport.join(2)
            except (paramiko.SSHException, EOFError, OSError):
                pass

    threading.Thread(target=serve, daemon=True).start()
    yield listener.getsockname()[1], recorder, f"{key.get_name()} {key.get_base64()}"
    listener.close()


def test_the_impostor_does_record_what_it_is_given(
    impostor: tuple[int, Recorder, str], tmp_path: Path
) -> None:
    """Without this, the tests below could not fail."""
    port, recorder, line = impostor
    private_sshd.new_key(tmp_path / "identity")
    host = connect(
        Endpoint("127.0.0.1", port, "someone", (line,)),
        identity=tmp_path / "identity",
        known_hosts=tmp_path / "known",
        machine_id="vm-1",
    )
    host.close()
    assert "key someone" in recorder.received


@pytest.mark.parametrize("same_kind", [True, False])
def test_a_wrong_host_key_is_refused_and_nothing_is_sent(
    impostor: tuple[int, Recorder, str], tmp_path: Path, same_kind: bool
) -> None:
    port, recorder, line = impostor
    private_sshd.new_key(tmp_path / "identity")
    real = private_sshd.new_key(tmp_path / "real", "ecdsa" if same_kind else "ed25519")
    with pytest.raises(HostKeyError, match="Nothing was sent") as caught:
        connect(
            Endpoint("127.0.0.1", port, "someone", (real,)),
            identity=tmp_path / "identity",
            known_hosts=tmp_path / "known",
            machine_id="vm-1",
        )
    assert set(recorder.received) <= {"handshake"}
    assert not (tmp_path / "known").exists()
    assert fingerprint(real) in caught.value.message
    assert fingerprint(line) in caught.value.message


def test_a_machine_without_a_known_key_is_not_contacted(
    impostor: tuple[int, Recorder, str], tmp_path: Path
) -> None:
    port, recorder, _ = impostor
    private_sshd.new_key(tmp_path / "identity")
    with pytest.raises(HostKeyError, match="No host key"):
        connect(
            Endpoint("127.0.0.1", port, "someone", ()),
            identity=tmp_path / "identity",
            known_hosts=tmp_path / "known",
            machine_id="vm-1",
        )
    assert recorder.received == []


def test_a_machine_that_changes_its_key_is_refused_though_the_provider_vouches(
    server: private_sshd.Sshd, impostor: tuple[int, Recorder, str], tmp_path: Path
) -> None:
    port, recorder, line = impostor
    known = tmp_path / "known"
    connect(server.endpoint, identity=server.identity, known_hosts=known, machine_id="vm-1").close()
    with pytest.raises(HostKeyError, match="another host key"):
        connect(
            Endpoint("127.0.0.1", port, "someone", (line,)),
            identity=server.identity,
            known_hosts=known,
            machine_id="vm-1",
        )
    assert recorder.received == []
    assert known.read_text() == f"vm-1 {server.endpoint.host_keys[0]}\n"


def test_the_pin_is_one_that_ssh_itself_reads(server: private_sshd.Sshd, tmp_path: Path) -> None:
    if shutil.which("ssh") is None:
        pytest.skip("no ssh on this computer")
    known = tmp_path / "known"
    connect(server.endpoint, identity=server.identity, known_hosts=known, machine_id="vm-1").close()
    options = [
        "HostKeyAlias=vm-1",
        f"UserKnownHostsFile={known}",
        "StrictHostKeyChecking=yes",
        "BatchMode=yes",
    ]
    arguments = [part for option in options for part in ("-o", option)]
    to = [f"{server.endpoint.user}@127.0.0.1", "echo in"]
    done = subprocess.run(
        ["ssh", "-F", "none", "-i", str(server.identity), "-p", str(server.endpoint.port), *arguments, *to],
        capture_output=True,
        timeout=30,
    )
    assert done.stdout.endswith(b"in\n"), done.stderr


def fingerprint(line: str) -> str:
    blob = base64.b64decode(line.split()[1])
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")
