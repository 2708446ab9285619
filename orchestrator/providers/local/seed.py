"""Write the files of a new machine before its first process starts."""

from __future__ import annotations

import os
import pwd
import shlex
import shutil
import subprocess
from pathlib import Path

from orchestrator.providers.local.store import Folder, Record
from orchestrator.providers.local.tools import sftp_server, tool

GUEST = Path(__file__).parent / "guest"
POWER_COMMANDS = ("poweroff", "halt", "reboot", "shutdown")

_SSHD = """\
Port {port}
ListenAddress {listen}
HostKey "{host_key}"
PidFile "{pid_file}"
AuthorizedKeysFile "{authorized_keys}"
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
PrintMotd no
PrintLastLog no
AcceptEnv LANG LC_*
MaxStartups 100:30:200
MaxSessions 100
"""


def seed_isolated(folder: Folder, record: Record, listen: str, port: int) -> None:
    """Fill seed/upper (files over this computer's system folders) and seed/root (folders that only the
    machine has).
    """
    upper, root = folder.path / "seed/upper", folder.path / "seed/root"
    ssh = upper / "etc/ssh"
    for key in Path("/etc/ssh").glob("ssh_host_*"):
        _write(ssh / key.name, "")  # hides this computer's host key
    _host_key(folder, ssh / "ssh_host_ed25519_key")
    _write(
        ssh / "sshd_config",
        _SSHD.format(
            port=port,
            listen=listen,
            host_key="/etc/ssh/ssh_host_ed25519_key",
            pid_file="/run/sshd.pid",
            authorized_keys=".ssh/authorized_keys",
        )
        + "Subsystem sftp internal-sftp\n",
    )
    _write(upper / "etc/shadow", _shadow(Path("/etc/passwd").read_text()), 0o600)
    _write(upper / "etc/hostname", record.name + "\n")
    _write(upper / "etc/hosts", "127.0.0.1 localhost\n::1 localhost\n")
    for name in POWER_COMMANDS:
        _write(upper / _sbin() / name, _power_command("1", "/run"), 0o755)
    _write(upper / "usr/lib/orch-machine/init.sh", (GUEST / "init.sh").read_text(), 0o755)
    if record.user_data:
        _write(upper / "var/lib/orch-machine/user-data", record.user_data, 0o700)
    _write(root / "root/.ssh/authorized_keys", record.ssh_public_key.strip() + "\n", 0o600)
    (root / "root/.ssh").chmod(0o700)


def seed_process(folder: Folder, record: Record, port: int) -> None:
    """Like `seed_isolated`, for a machine that is only a process: all its files are in its folder."""
    here = folder.path
    for name in ("home", "base", "bin", "run", "log"):
        (here / name).mkdir(exist_ok=True)
    _host_key(folder, here / "run/ssh_host_key")
    _write(here / "authorized_keys", record.ssh_public_key.strip() + "\n", 0o600)
    environment = {"HOME": here / "home", "PATH": f"{here}/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"}
    pairs = " ".join(
        f'"{name}={value}"' for name, value in {**environment, "ORCH_MACHINE": folder.mark}.items()
    )
    server = sftp_server()
    lines = [
        _SSHD.format(
            port=port,
            listen="127.0.0.1",
            host_key=here / "run/ssh_host_key",
            pid_file=here / "run/sshd.pid",
            authorized_keys=str(here / "authorized_keys").replace("%", "%%"),
        ),
        "StrictModes no\n",  # the folder is private, even if the folders above it are not
        f"SetEnv {pairs}\n",
        f"ForceCommand {shlex.quote(str(here / 'bin/session'))}\n",
        f"Subsystem sftp {server}\n" if server else "",
    ]
    _write(here / "sshd_config", "".join(lines))
    _write(here / "bin/session", (GUEST / "session.sh").read_text(), 0o755)
    for name in POWER_COMMANDS:
        pid = f'"$(cat {shlex.quote(str(here / "run/init.pid"))})"'
        _write(here / "bin" / name, _power_command(pid, shlex.quote(str(here / "run"))), 0o755)
    if record.user_data:
        _write(here / "user-data", record.user_data, 0o700)


def _host_key(folder: Folder, private: Path) -> None:
    """Create a key for this machine only; its public half is stored where endpoint() reads it."""
    private.parent.mkdir(parents=True, exist_ok=True)
    for path in (private, private.with_suffix(".pub")):
        path.unlink(missing_ok=True)
    make = [tool("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-C", folder.id, "-f", str(private)]
    subprocess.run(make, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    private.chmod(0o600)
    shutil.copyfile(f"{private}.pub", folder.path / "host_key.pub")


def _shadow(passwd: str) -> str:
    """Return a shadow file without passwords and without locked accounts, which sshd refuses."""
    names = [line.partition(":")[0] for line in passwd.splitlines() if ":" in line]
    return "".join(f"{name}:*:19000:0:99999:7:::\n" for name in names)


def _sbin() -> str:
    """Return the real path of /sbin, which is a link on most systems."""
    sbin = Path("/sbin").resolve()
    return str(sbin.relative_to("/"))


def _power_command(init: str, run: str) -> str:
    return (GUEST / "poweroff.sh").read_text().replace("@INIT@", init).replace("@RUN@", run)


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    path.chmod(mode)


def current_user() -> str:
    return pwd.getpwuid(os.geteuid()).pw_name
