"""A host over ssh: its login shell, its start-up and its loss of contact."""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import paramiko
import pytest

from orchestrator.errors import HostError, HostKeyError
from orchestrator.hosts import connect
from orchestrator.model import Channel, Endpoint, Host
from tests.conformance import private_sshd
from tests.conformance.private_sshd import over_ssh


def test_commands_run_side_by_side(server: private_sshd.Sshd, tmp_path: Path) -> None:
    host = over_ssh(server, tmp_path)
    answers: dict[int, bytes] = {}

    def ask(number: int) -> None:
        data = bytes([number]) * (1 << 20)
        answers[number] = host.run(["cat"], stdin=data).stdout

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    host.close()
    assert answers == {number: bytes([number]) * (1 << 20) for number in range(6)}


def test_a_noisy_login_shell_does_not_hurt(tmp_path: Path) -> None:
    if reason := private_sshd.why_not():
        pytest.skip(reason)
    home = tmp_path / "home"
    home.mkdir()
    noise = "echo welcome\necho; seq 1 20000\necho careful >&2\nprintf 'no line end'\nprintf 'nor here' >&2\n"
    for name in (".bashrc", ".profile", ".bash_profile", ".zshenv"):
        (home / name).write_text(noise)
    with private_sshd.sshd(tmp_path / "sshd", home=home) as server:
        host = over_ssh(server, tmp_path)
        done = host.run(["sh", "-c", "cat; printf err >&2; exit 3"], stdin=b"in")
        assert (done.stdout, done.stderr, done.returncode) == (b"in", b"err", 3)
        shown = host.run(["sh", "-c", "echo $HOME"]).stdout.decode().strip()
        assert shown == str(home)  # so those files really were in the way
        host.close()


def test_a_login_shell_that_gives_up_is_named(tmp_path: Path) -> None:
    if reason := private_sshd.why_not():
        pytest.skip(reason)
    if not pwd.getpwuid(os.getuid()).pw_shell.endswith("bash"):
        pytest.skip("only bash reads a start-up file for commands")
    home = tmp_path / "home"
    home.mkdir()
    (home / ".bashrc").write_text("echo 'no more logins'; exit 5\n")
    with private_sshd.sshd(tmp_path / "sshd", home=home) as server:
        host = over_ssh(server, tmp_path)
        with pytest.raises(HostError, match="no more logins"):
            host.run(["true"])
        host.close()


def test_small_commands_do_not_wait_for_acknowledgements(server: private_sshd.Sshd, tmp_path: Path) -> None:
    host = over_ssh(server, tmp_path)
    sock = host._transport.sock  # type: ignore[attr-defined]
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert host._transport.local_cipher == "aes128-gcm@openssh.com"  # type: ignore[attr-defined]
    host.close()


@pytest.mark.parametrize("kind", ["rsa", "ecdsa"])
def test_other_kinds_of_host_keys(tmp_path: Path, kind: str) -> None:
    if reason := private_sshd.why_not():
        pytest.skip(reason)
    with private_sshd.sshd(tmp_path / "sshd", kind=kind) as server:
        host = over_ssh(server, tmp_path)
        assert host.run(["echo", kind]).stdout == kind.encode() + b"\n"
        host.close()


def test_an_sshd_that_is_still_coming_up_is_waited_for(server: private_sshd.Sshd, tmp_path: Path) -> None:
    """Refused, then hung up on, then let through."""
    port = private_sshd.free_port()
    endpoint = Endpoint("127.0.0.1", port, server.endpoint.user, server.endpoint.host_keys)

    def come_up() -> None:
        time.sleep(0.3)
        with socket.create_server(("127.0.0.1", port)) as listener:
            listener.accept()[0].close()
            _relay(listener.accept()[0], server.endpoint.port)

    threading.Thread(target=come_up, daemon=True).start()
    host = connect(
        endpoint, identity=server.identity, known_hosts=tmp_path / "known", machine_id="vm-1", timeout=20
    )
    assert host.run(["echo", "up"]).stdout == b"up\n"
    host.close()


def test_one_that_never_answers_is_given_up_with_a_next_command(
    tmp_path: Path, server: private_sshd.Sshd
) -> None:
    endpoint = Endpoint("127.0.0.1", private_sshd.free_port(), "root", server.endpoint.host_keys)
    with pytest.raises(HostError, match="did not answer") as caught:
        connect(
            endpoint, identity=server.identity, known_hosts=tmp_path / "k", machine_id="vm-1", timeout=0.5
        )
    assert caught.value.next_command == "orch status"


def test_contact_lost_in_the_middle_is_an_error(server: private_sshd.Sshd, tmp_path: Path) -> None:
    port, cut = _cuttable(server.endpoint.port)
    endpoint = Endpoint("127.0.0.1", port, server.endpoint.user, server.endpoint.host_keys)
    host = connect(endpoint, identity=server.identity, known_hosts=tmp_path / "known", machine_id="vm-1")
    with host.open(["sh", "-c", "echo begun; exec sleep 1000"]) as channel:
        assert channel.read(100) == b"begun\n"
        cut.set()
        with pytest.raises(HostError, match="was lost") as caught:
            channel.wait()
    assert caught.value.next_command == "orch status"
    assert caught.value.exit_code == 8
    with pytest.raises(HostError, match="was lost"):
        host.run(["true"])


_USES: dict[str, Callable[[Host, Path], object]] = {
    "begin": lambda host, _: host.run(["true"]),
    "put": lambda host, _: host.put(b"x" * 100, "/tmp/never"),
    "get": lambda host, here: host.get("/etc/hostname", here / "never"),
}
_CHANNEL_USES: dict[str, Callable[[Channel], object]] = {
    "write": lambda channel: channel.write(b"x" * 100),
    "close_stdin": lambda channel: channel.close_stdin(),
    "read": lambda channel: [channel.read(1 << 20) for _ in range(64)],
    "wait": lambda channel: channel.wait(),
}


def _cannot_send(host: Host, failure: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on every packet fails as it does where the connection has just ended and the library's thread
    that reads has not noticed yet.
    """

    def fail(*_: object) -> None:
        raise failure

    monkeypatch.setattr(host._transport, "_send_message", fail)  # type: ignore[attr-defined]


@pytest.mark.parametrize("failure", [EOFError(), paramiko.SSHException("Key-exchange timed out")], ids=repr)
@pytest.mark.parametrize("use", _CHANNEL_USES)
def test_a_command_whose_packets_cannot_be_sent_has_lost_contact(
    server: private_sshd.Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use: str, failure: Exception
) -> None:
    """An EOFError that went on up would be taken for the end of the user's input."""
    host = over_ssh(server, tmp_path)
    with host.open(["sh", "-c", "echo begun; head -c 32M /dev/zero; cat"]) as channel:
        assert channel.read(6) == b"begun\n"
        _cannot_send(host, failure, monkeypatch)
        with pytest.raises(HostError, match=r"Contact with .* was lost while"):
            _CHANNEL_USES[use](channel)
    monkeypatch.undo()
    host.close()


@pytest.mark.parametrize("use", _USES)
def test_a_command_that_cannot_be_sent_has_lost_contact(
    server: private_sshd.Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use: str
) -> None:
    host = over_ssh(server, tmp_path)
    _cannot_send(host, EOFError(), monkeypatch)
    with pytest.raises(HostError, match=r"Contact with .* was lost before"):
        _USES[use](host, tmp_path)
    monkeypatch.undo()
    host.close()


def test_a_machine_that_stands_still_is_lost(
    server: private_sshd.Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its kernel still acknowledges every packet: only the missing answer tells."""
    monkeypatch.setattr("orchestrator.hosts.ssh.LOST_AFTER", 1.0)
    monkeypatch.setattr("orchestrator.hosts.ssh.ASK_EVERY", 0.1)
    host = over_ssh(server, tmp_path)
    with host.open(["sh", "-c", "echo $PPID; exec sleep 1000"]) as channel:
        session = int(channel.read(100))
        time.sleep(1.5)  # longer than LOST_AFTER: a machine that answers is not lost
        assert host.run(["echo", "there"]).stdout == b"there\n"
        os.kill(session, signal.SIGSTOP)
        try:
            with pytest.raises(HostError, match="was lost"):
                channel.wait()
        finally:
            os.kill(session, signal.SIGCONT)


def test_a_user_key_that_is_not_allowed_is_an_error(server: private_sshd.Sshd, tmp_path: Path) -> None:
    private_sshd.new_key(tmp_path / "other")
    with pytest.raises(HostError, match="did not let") as caught:
        connect(
            server.endpoint, identity=tmp_path / "other", known_hosts=tmp_path / "known", machine_id="vm-1"
        )
    assert not isinstance(caught.value, HostKeyError)


def _relay(near: socket.socket, port: int, cut: threading.Event | None = None) -> None:
    far = socket.create_connection(("127.0.0.1", port))

    def pump(source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                sink.sendall(data)
        except OSError:
            pass
        for end in (near, far):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    for pair in ((near, far), (far, near)):
        threading.Thread(target=pump, args=pair, daemon=True).start()
    if cut is not None:
        cut.wait()
        for end in (near, far):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def _cuttable(port: int) -> tuple[int, threading.Event]:
    cut = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        near = listener.accept()[0]
        listener.close()
        _relay(near, port, cut)

    threading.Thread(target=serve, daemon=True).start()
    return int(listener.getsockname()[1]), cut
