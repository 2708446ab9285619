"""A real sshd of this user's own, on a high port of 127.0.0.1, for tests and measurements."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from orchestrator.hosts import connect
from orchestrator.model import Endpoint, Host

SSHD = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")


@dataclass(frozen=True)
class Sshd:
    endpoint: Endpoint
    identity: Path
    process: subprocess.Popen[bytes]


def why_not() -> str | None:
    """The reason why no sshd can run here; None where it can."""
    if SSHD is None:
        return "no sshd on this computer"
    if shutil.which("ssh-keygen") is None:
        return "no ssh-keygen on this computer"
    return None


def new_key(path: Path, kind: str = "ed25519") -> str:
    """Make a key pair at `path`; its public line "type base64"."""
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", "", "-f", str(path)], check=True)
    return path.with_name(path.name + ".pub").read_text().strip()


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextlib.contextmanager
def sshd(folder: Path, *, home: Path | None = None, kind: str = "ed25519") -> Iterator[Sshd]:
    """Runs while the block does. `home` replaces the user's home folder, start-up files included."""
    assert SSHD is not None
    folder.mkdir(parents=True, exist_ok=True)
    host_line = new_key(folder / "host_key", kind)
    user_line = new_key(folder / "identity")
    option = f'environment="HOME={home}" ' if home else ""
    (folder / "authorized_keys").write_text(f"{option}{user_line}\n")
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    port = free_port()
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host_key\nPidFile none\n"
        f"AuthorizedKeysFile {folder}/authorized_keys\nStrictModes no\nUsePAM no\n"
        "PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n"
        "PermitUserEnvironment yes\nMaxSessions 50\n"
    )
    with open(folder / "sshd.log", "wb") as log:
        process = subprocess.Popen([SSHD, "-D", "-e", "-f", str(folder / "sshd_config")], stderr=log)
    try:
        _await_port(port, process, folder / "sshd.log")
        endpoint = Endpoint("127.0.0.1", port, getpass.getuser(), (host_line,))
        yield Sshd(endpoint, folder / "identity", process)
    finally:
        process.terminate()
        process.wait()


def over_ssh(server: Sshd, folder: Path) -> Host:
    """A connection to it; host keys that were seen are noted in `folder`."""
    return connect(
        server.endpoint, identity=server.identity, known_hosts=folder / "known_hosts", machine_id="vm-1"
    )


def _await_port(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(200):
        if process.poll() is not None:
            break
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise RuntimeError(f"sshd did not start: {log.read_text()}")
