"""One suite for every kind of host, and what only a host over ssh has to prove."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import paramiko
import pytest

from orchestrator.errors import HostError, HostKeyError
from orchestrator.hosts import HereHost, connect
from orchestrator.model import Endpoint, Host
from tests.conformance import private_sshd
from tests.conformance.private_sshd import over_ssh

ECHO_ARGUMENTS = "import json, sys; sys.stdout.write(json.dumps(sys.argv[1:]))"
PYTHON = sys.executable


@pytest.fixture(params=["here", "ssh"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Host]:
    made = HereHost() if request.param == "here" else over_ssh(request.getfixturevalue("server"), tmp_path)
    yield made
    made.close()


# ---------------------------------------------------------------- both


@pytest.mark.parametrize(
    "arguments",
    [
        ["plain", "two words", "  edges  "],
        ["", "", "x", ""],
        ["it's", 'a "quote"', "`date`", "$HOME", "$(id)", "\\", "a\\nb", "!", "*", "~"],
        ["line\nbreak", "tab\t", "\r\n", "trailing\n"],
        ["grüße", "日本語", "🜁", "e\u0301"],
        ["-n", "--", "-c", "; exit 3", "&& false", "| cat", "> /dev/null", "#x"],
    ],
)
def test_arguments_arrive_as_they_are(host: Host, arguments: list[str]) -> None:
    done = host.run([PYTHON, "-c", ECHO_ARGUMENTS, *arguments])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == arguments
    assert done.argv == (PYTHON, "-c", ECHO_ARGUMENTS, *arguments)


@pytest.mark.parametrize("code", [0, 1, 2, 42, 255])
def test_exit_codes(host: Host, code: int) -> None:
    assert host.run(["sh", "-c", f"exit {code}"]).returncode == code


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV, signal.SIGUSR1])
def test_a_signal_is_128_and_its_number(host: Host, number: int) -> None:
    assert host.run(["sh", "-c", f"kill -{int(number)} $$"]).returncode == 128 + number


def test_a_missing_command_is_127_and_says_so(host: Host) -> None:
    done = host.run(["no-such-command-anywhere", "x"])
    assert done.returncode == 127
    assert b"no-such-command-anywhere" in done.stderr


def test_a_command_that_may_not_run_is_126(host: Host, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("x")
    assert host.run([str(tmp_path / "data")]).returncode == 126


def test_outputs_are_kept_apart(host: Host) -> None:
    done = host.run(["sh", "-c", "printf out; printf err >&2; printf more"])
    assert (done.stdout, done.stderr) == (b"outmore", b"err")


def test_no_stdin_is_an_empty_one(host: Host) -> None:
    assert host.run(["wc", "-c"]).stdout.split() == [b"0"]


def test_ten_mebibytes_both_ways(host: Host) -> None:
    data = os.urandom(10 << 20)
    assert host.run(["cat"], stdin=data).stdout == data


def test_much_on_all_three_streams_at_once(host: Host) -> None:
    script = "import sys\nfor b in iter(lambda: sys.stdin.buffer.read(65536), b''):\n"
    script += "  sys.stdout.buffer.write(b); sys.stderr.buffer.write(b)"
    data = os.urandom(5 << 20)
    done = host.run([PYTHON, "-c", script], stdin=data)
    assert done.stdout == data
    assert done.stderr == data


def test_input_that_nobody_reads_is_dropped(host: Host) -> None:
    done = host.run(["sh", "-c", "exit 7"], stdin=b"x" * (8 << 20))
    assert done.returncode == 7


def test_a_channel_is_a_conversation(host: Host) -> None:
    with host.open(["cat"]) as channel:
        for text in (b"one", b"two", b"three"):
            channel.write(text)
            heard = b""
            while len(heard) < len(text):
                heard += channel.read(2)
            assert heard == text
        channel.close_stdin()
        assert channel.read(10) == b""
        assert channel.wait().returncode == 0


def test_a_channel_read_by_one_thread_and_written_by_another(host: Host) -> None:
    data = os.urandom(6 << 20)
    with host.open(["cat"]) as channel:

        def write() -> None:
            channel.write(data)
            channel.close_stdin()

        writer = threading.Thread(target=write)
        writer.start()
        heard = bytearray()
        while part := channel.read(1 << 16):
            heard += part
        writer.join()
        assert channel.wait().returncode == 0
    assert bytes(heard) == data


def test_wait_holds_what_was_not_read(host: Host) -> None:
    with host.open(["sh", "-c", "printf 123456789"]) as channel:
        assert channel.read(3) == b"123"
        channel.close_stdin()
        assert channel.wait().stdout == b"456789"


def test_put_makes_folders_and_sets_modes(host: Host, tmp_path: Path) -> None:
    target = tmp_path / "new folder" / "it's $HOME" / "file"
    host.put(b"\0bytes\xff", str(target), mode=0o751)
    assert target.read_bytes() == b"\0bytes\xff"
    assert stat.S_IMODE(target.stat().st_mode) == 0o751


def test_put_replaces_in_one_step(host: Host, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(os.urandom(3 << 20))
    target.write_text("old")
    before = os.open(target, os.O_RDONLY)
    host.put(source, str(target))
    assert target.read_bytes() == source.read_bytes()
    assert os.read(before, 10) == b"old"  # another file took its place: readers never saw a mixture
    os.close(before)
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "known_hosts") == [
        "source",
        "target",
    ]


def test_put_onto_a_folder_is_refused(host: Host, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(HostError):
        host.put(b"x", str(tmp_path / "folder"))
    assert list((tmp_path / "folder").iterdir()) == []


def test_get_fetches_whole_files(host: Host, tmp_path: Path) -> None:
    (tmp_path / "a b").write_bytes(os.urandom(3 << 20))
    host.get(str(tmp_path / "a b"), tmp_path / "in" / "copy")
    assert (tmp_path / "in" / "copy").read_bytes() == (tmp_path / "a b").read_bytes()


def test_a_get_that_fails_leaves_the_old_file(host: Host, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "copy").write_text("old")
    with pytest.raises(HostError, match="absent"):
        host.get(str(tmp_path / "absent"), tmp_path / "in" / "copy")
    assert [(path.name, path.read_text()) for path in (tmp_path / "in").iterdir()] == [("copy", "old")]


def test_a_command_out_of_time_is_stopped_with_its_children(host: Host) -> None:
    with host.open(["sh", "-c", "sleep 1000 & echo $! $$; wait"]) as channel:
        pids = [int(word) for word in channel.read(100).split()]
        with pytest.raises(HostError, match="did not end"):
            channel.wait(timeout=0.2)
    assert len(pids) == 2
    for pid in pids:
        await_end(pid)


def test_run_has_a_time_too(host: Host) -> None:
    with pytest.raises(HostError, match=r"did not end|had not begun"):
        host.run(["sleep", "1000"], timeout=0.5)


def test_a_command_that_ignores_the_request_to_end_is_killed(host: Host) -> None:
    with host.open(["sh", "-c", "trap '' TERM; echo $$; while :; do sleep 0.1; done"]) as channel:
        pid = int(channel.read(100))
        with pytest.raises(HostError, match="did not end"):
            channel.wait(timeout=0.2)
    await_end(pid)


def test_a_command_that_does_not_read_is_out_of_time_too(host: Host) -> None:
    with pytest.raises(HostError, match="did not end"):
        host.run(["sleep", "1000"], stdin=b"x" * (16 << 20), timeout=1)


@pytest.mark.parametrize("argv", [[], [""], ["echo", "a\0b"]])
def test_what_is_no_command_is_refused(host: Host, argv: list[str]) -> None:
    with pytest.raises(ValueError):
        host.run(argv)


def await_end(pid: int) -> None:
    """A signal is carried out when the process is next given a processor: on a busy computer, later."""
    patience = time.monotonic() + 60
    while alive(pid):
        assert time.monotonic() < patience, f"{pid} was not ended"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    """Running, and not merely waiting for its parent to notice its end."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


# ---------------------------------------------------------------- ssh only


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


# ---------------------------------------------------------------- who is there?


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
            except (paramiko.SSHException, EOFError):
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
    with pytest.raises(HostKeyError, match="no host key"):
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


# ---------------------------------------------------------------- a wire to cut


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
