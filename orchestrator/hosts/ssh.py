"""Machines over ssh: one connection, a channel for each command, no SFTP.

Defaults of the library that cost time are changed here: TCP_NODELAY is set, a cipher that processors
accelerate comes first, and files are transferred as the input and output of commands.
"""

from __future__ import annotations

import logging
import secrets
import signal
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import paramiko
from paramiko.common import MSG_CHANNEL_REQUEST
from paramiko.pkey import UnknownKeyType
from paramiko.ssh_exception import IncompatiblePeer

from orchestrator.errors import HostError, HostKeyError, LoginRefused
from orchestrator.hosts import hostkeys
from orchestrator.hosts.atomic import atomic_file
from orchestrator.hosts.channel import SshChannel
from orchestrator.hosts.command import STOP_GROUP, checked, remote_text, shown
from orchestrator.hosts.limits import admit, irregular, shrank
from orchestrator.hosts.wire import Piped, connected
from orchestrator.model import LARGEST_FILE, OUTPUT, Completed, Endpoint
from orchestrator.model.answers import malformed
from orchestrator.model.plain import last_words

LOST_AFTER = 45.0
"""Seconds without an answer after which contact counts as lost, for example by a cut wire or a hung
machine.
"""

ASK_EVERY = 10.0
"""Seconds between questions whether the machine still answers."""

_BEGIN_WITHIN = 60.0
_CHUNK = 1 << 18
_REKEY_AFTER = 32 << 30
"""Bytes in one direction after which new keys are agreed. The library's half a GiB interrupts large
transfers, and an exchange under load can time out; OpenSSH's own limit for these ciphers is 64 GiB.
"""
_FAST_CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com")

# $1 the folder, $2 the part, $3 the target, $4 the mode, $5 the size. A cut connection looks like the end of
# the input: only the size tells them apart.
_PUT = (
    'if [ -d "$3" ]; then echo "$3 is a folder" >&2; exit 1; fi; '
    'mkdir -p -- "$1" && umask 077 && cat > "$2" && [ "$(wc -c < "$2")" -eq "$5" ] && '
    'chmod "$4" "$2" && { sync "$2" 2>/dev/null || :; } && mv -f -- "$2" "$3" || '
    '{ code=$?; rm -f -- "$2"; exit "$code"; }'
)

# $1 the file. Prints its size, then that many of its bytes; of a growing file, those present at the start.
_IRREGULAR = 66
_DIGITS = 20
_GET = (
    'if [ -L "$1" ] || { [ -e "$1" ] && [ ! -f "$1" ]; }; then exit 66; fi; '
    'exec <"$1" && size=$(stat -L -c %s /dev/stdin) && echo "$size" && exec head -c "$size"'
)

# otherwise the library prints its warnings to the user's terminal
logging.getLogger("paramiko").addHandler(logging.NullHandler())

_LOG = logging.getLogger(__name__)


class _Transport(paramiko.Transport):
    """Record the signals that ended commands; the base class drops them."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self.signals: dict[int, int] = {}
        self.packetizer.REKEY_BYTES = _REKEY_AFTER

    def _channel_request(self: Any, message: Any) -> None:
        # Called with the channel as `self`: the table below holds plain functions.
        packet = paramiko.Message(message.asbytes())
        packet.get_int()
        if packet.get_text() == "exit-signal":
            packet.get_boolean()
            self.transport.signals[self.chanid] = _signal_number(packet.get_text())
        paramiko.Channel._handle_request(self, message)  # type: ignore[attr-defined]

    _channel_handler_table = {  # noqa: RUF012
        **paramiko.Transport._channel_handler_table,  # type: ignore[attr-defined]
        MSG_CHANNEL_REQUEST: _channel_request,
    }


class _Complaint(OSError):
    """The tunnel's program printed an error; the message is its last line."""


class SshHost:
    """A machine behind one ssh connection. Several threads may run commands at the same time."""

    def __init__(self, name: str, transport: _Transport) -> None:
        self.name = name
        self._transport = transport

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes | None = None,
        timeout: float | None = None,
        most: int = OUTPUT,
    ) -> Completed:
        began = time.monotonic()
        with self._open(argv, timeout, most) as channel:
            channel.write(stdin or b"")
            channel.close_stdin()
            done = channel.wait()
        seconds = time.monotonic() - began
        _LOG.debug("%s: %s: code %d in %.2f s", self.name, shown(argv), done.returncode, seconds)
        return done

    def open(self, argv: Sequence[str]) -> SshChannel:
        return self._open(argv, None)

    def put(self, source: bytes | Path, target: str, *, mode: int = 0o644) -> None:
        try:
            size = len(source) if isinstance(source, bytes) else source.stat().st_size
        except OSError as error:
            raise HostError(f"{source!s} cannot be read, so it was not sent: {error}") from error
        folder = str(PurePosixPath(target).parent)
        part = f"{target}.{secrets.token_hex(4)}.part"
        script = ("/bin/sh", "-c", _PUT, "sh", folder, part, target, f"{mode:o}", str(size))
        with self._open(script, None) as channel:
            if isinstance(source, bytes):
                channel.write(source)
            else:
                _write_file(channel, source)
            channel.close_stdin()
            done = channel.wait()
        if done.returncode:
            raise self._refused(f"{target} could not be written on {self.name}", done)

    def get(self, source: str, target: Path, *, most: int = LARGEST_FILE) -> None:
        with self._open(("/bin/sh", "-c", _GET, "sh", source), None) as channel:
            channel.close_stdin()
            size = self._announced(channel, source)
            admit(source, self.name, size, most, target)
            with atomic_file(target) as file:
                left = size
                while left and (data := channel.read(min(left, _CHUNK))):
                    file.write(data)
                    left -= len(data)
                if left:
                    channel.wait(_BEGIN_WITHIN)  # raises where contact was lost
                    raise shrank(source, self.name, size, size - left)

    def _announced(self, channel: SshChannel, source: str) -> int:
        """Return the file's size in bytes, which the remote script prints first."""
        line = b""
        while not line.endswith(b"\n") and len(line) <= _DIGITS and (byte := channel.read(1)):
            line += byte
        if line.endswith(b"\n") and line[:-1].isdigit():
            return int(line)
        if line:
            raise malformed(self.name, "a fetch", "the size of a file is not a number")
        done = channel.wait(_BEGIN_WITHIN)
        if done.returncode == _IRREGULAR:
            raise irregular(source, self.name)
        raise self._refused(f"{source} could not be fetched from {self.name}", done)

    def close(self) -> None:
        self._transport.close()

    def _open(self, argv: Sequence[str], timeout: float | None, most: int = OUTPUT) -> SshChannel:
        words = checked(argv)
        mark = secrets.token_hex(8)
        try:
            raw = self._transport.open_session(timeout=timeout or _BEGIN_WITHIN)
            raw.exec_command(remote_text(words, mark))
        except (paramiko.SSHException, OSError, EOFError) as error:
            if self._transport.is_active() and not isinstance(error, EOFError):
                raise HostError(f"{self.name} did not start `{shown(words)}`: {error}") from error
            raise self._lost(f"before `{shown(words)}` began") from error
        return SshChannel(
            words,
            raw,
            mark.encode(),
            timeout,
            most,
            name=self.name,
            lost=self._lost,
            stop=self._stop,
            signal_of=lambda: self._transport.signals.get(raw.chanid),
        )

    def _stop(self, group: int) -> None:
        self.run(("/bin/sh", "-c", STOP_GROUP, "sh", str(group)), timeout=_BEGIN_WITHIN)

    def _lost(self, when: str) -> HostError:
        return HostError(
            f"Contact with {self.name} was lost {when}.",
            exists=f"Machine {self.name} may still be running and cost money.",
            next_command="orch status",
        )

    def _refused(self, what: str, done: Completed) -> HostError:
        why = last_words(done.stderr) or f"it ended with {done.returncode}"
        return HostError(f"{what}: {why}")


def connect(
    endpoint: Endpoint, *, identity: Path, known_hosts: Path, machine_id: str, timeout: float = 30
) -> SshHost:
    """See `hosts.connect`."""
    admitted = hostkeys.expected_keys(machine_id, endpoint.host_keys, known_hosts)
    key = _read_identity(identity)
    transport = _shake_hands(endpoint, machine_id, admitted, time.monotonic() + timeout, timeout)
    try:
        hostkeys.verify(machine_id, _shown_key(transport), admitted)
        hostkeys.pin(machine_id, admitted, known_hosts)
        transport.auth_publickey(endpoint.user, key)
    except (paramiko.SSHException, OSError, EOFError) as error:
        transport.close()
        raise LoginRefused(
            f"{machine_id} did not let {endpoint.user} in with the key {identity}: {_told(error)}",
            exists=f"Machine {machine_id} exists and costs money.",
            next_command="orch status",
        ) from error
    except BaseException:
        transport.close()
        raise
    threading.Thread(target=_watch, args=(transport,), daemon=True).start()
    return SshHost(machine_id, transport)


def _shake_hands(
    endpoint: Endpoint,
    machine_id: str,
    admitted: Sequence[hostkeys.HostKey],
    deadline: float,
    timeout: float,
) -> _Transport:
    """Return an encrypted connection before login; retried until the machine answers or the deadline."""
    pause = 0.05
    cause: Exception | None = None
    while True:
        left = max(0.1, deadline - time.monotonic())
        try:
            return _shake_hands_once(endpoint, admitted, left)
        except IncompatiblePeer as error:
            raise HostKeyError(
                f"The server that answers for {machine_id} has a host key of another type than the machine "
                f"({error}). Nothing was sent.",
                next_command="orch status",
            ) from error
        except (paramiko.SSHException, OSError, EOFError) as error:
            # The last attempt may only have timed out; an earlier error of the tunnel says more.
            if isinstance(error, _Complaint) or not isinstance(cause, _Complaint):
                cause = error
            if time.monotonic() + pause >= deadline:
                where = shown(endpoint.proxy) if endpoint.proxy else f"{endpoint.address}:{endpoint.port}"
                raise HostError(
                    f"{machine_id} did not answer at {where} within {timeout:g} s: {_told(cause)}",
                    exists=f"Machine {machine_id} may exist and cost money.",
                    next_command="orch status",
                ) from cause
        time.sleep(pause)
        pause = min(1.0, pause * 1.6)


def _shake_hands_once(endpoint: Endpoint, admitted: Sequence[hostkeys.HostKey], left: float) -> _Transport:
    sock = connected(endpoint, min(left, 10.0))
    transport = None
    try:
        transport = _Transport(sock)
        transport.banner_timeout = transport.handshake_timeout = left
        options = transport.get_security_options()
        options.ciphers = _first(_FAST_CIPHERS, options.ciphers)
        options.key_types = _first(_algorithms(admitted), options.key_types)
        transport.start_client(timeout=left)
        _require_session(transport)
    except BaseException as error:
        if transport is not None:
            transport.close()
        sock.close()
        _tell_complaint(sock, error)
        raise
    return transport


def _require_session(transport: _Transport) -> None:
    """Raise unless there is a session: the library's `start_client` also returns after its timeout, or if the
    connection has just ended.
    """
    if not (transport.is_active() and transport.initial_kex_done):
        raise transport.get_exception() or paramiko.SSHException("no encrypted connection was established")


def _told(error: Exception) -> str:
    return str(error) or "it closed the connection"


def _tell_complaint(sock: socket.socket, error: BaseException) -> None:
    """Raise _Complaint with the last error line of the tunnel's program, if there is one: it is more specific
    than `error`.
    """
    complaint = sock.complaint() if isinstance(sock, Piped) else ""
    if complaint and isinstance(error, paramiko.SSHException | OSError | EOFError):
        raise _Complaint(complaint) from error


def _watch(transport: paramiko.Transport) -> None:
    """Send keep-alive requests, and close the connection if the machine has not answered for too long.

    Otherwise a command on a hung or disconnected machine would block forever.
    """
    while transport.is_active():
        hang_up = threading.Timer(LOST_AFTER, transport.close)
        hang_up.daemon = True
        hang_up.start()
        try:
            transport.global_request("keepalive@openssh.com", wait=True)
        except (paramiko.SSHException, OSError, EOFError):
            return
        finally:
            hang_up.cancel()
        time.sleep(ASK_EVERY)


def _first(wanted: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """Return `known`, its members that are in `wanted` first."""
    front = tuple(name for name in wanted if name in known)
    return (*front, *(name for name in known if name not in front))


def _algorithms(keys: Sequence[hostkeys.HostKey]) -> tuple[str, ...]:
    """Return the signature algorithms by which `keys` can be verified."""
    rsa = ("rsa-sha2-512", "rsa-sha2-256")
    return tuple(name for key in keys for name in (rsa if key.kind == "ssh-rsa" else (key.kind,)))


def _shown_key(transport: paramiko.Transport) -> hostkeys.HostKey:
    key = transport.get_remote_server_key()
    return hostkeys.HostKey(key.get_name(), key.asbytes())


def _read_identity(identity: Path) -> paramiko.PKey:
    try:
        return paramiko.PKey.from_path(identity)
    except (OSError, ValueError, TypeError, paramiko.SSHException, UnknownKeyType) as error:
        raise HostError(f"The private key {identity} cannot be used: {error}") from error


def _write_file(channel: SshChannel, source: Path) -> None:
    with open(source, "rb") as file:
        while data := file.read(_CHUNK):
            channel.write(data)


def _signal_number(name: str) -> int:
    """Return the number of a signal that ssh names, such as "KILL"; 0 for an unknown name."""
    try:
        return int(signal.Signals[f"SIG{name.partition('@')[0]}"])
    except KeyError:
        return 0
