"""ssh, forward, ssh-config: the user's own ssh to the machine, with the host key that orch verified."""

from __future__ import annotations

import os
import shlex
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

from orchestrator.errors import OrchError, UsageError
from orchestrator.hosts.atomic import atomic_write
from orchestrator.leases.remains import naming
from orchestrator.ledger import Lease
from orchestrator.model import Progress
from orchestrator.model.progress import as_progress, notice
from orchestrator.session.project import Project
from orchestrator.session.ssh_access import SshAccess, include, include_line, is_included, ssh_access_of


def ssh_command(
    command: Sequence[str] = (),
    *,
    forwards: Sequence[str] = (),
    lease: str | None = None,
    folder: Path | str | None = None,
) -> list[str]:
    """The `ssh` command line of the machine: its own key and known_hosts, nothing of the user's.

    `forwards`: local ports that lead to the machine, as ssh's -L takes them.
    """
    project = Project.at(folder)
    return _door(project, project.lease(lease), shlex.join(["orch", "ssh", *command])).argv(command, forwards)


def forward_command(
    ports: Sequence[str], *, lease: str | None = None, folder: Path | str | None = None
) -> tuple[list[str], list[str]]:
    """The `ssh` command line that only forwards ports, and what each leads to, as "localhost:8888 -> 8888".

    A port is `8888`, or `9000:8888` for port 9000 of this computer. Only this computer can connect to it.
    """
    pairs = [_ports(text) for text in ports]
    forwards = [f"127.0.0.1:{here}:127.0.0.1:{there}" for here, there in pairs]
    argv = ssh_command(forwards=forwards, lease=lease, folder=folder)
    told = [f"localhost:{here} -> port {there} of the machine" for here, there in pairs]
    return [argv[0], "-N", "-o", "ExitOnForwardFailure=yes", *argv[1:]], told


def exec_ssh(argv: Sequence[str]) -> NoReturn:
    """Replace this process by ssh, which gets its terminal and signals, and determines its exit code."""
    os.execvp(argv[0], list(argv))


@dataclass(frozen=True)
class SshConfig:
    """`file` has an entry for each of `hosts`. `include`: the line for ~/.ssh/config that reads it;
    `included`: whether it is there. `left_out`: leases whose machine has no address now, with the reason.
    """

    file: str
    hosts: Sequence[str]
    include: str
    included: bool
    left_out: Sequence[str] = ()

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def ssh_config(
    *,
    install: bool = False,
    home: Path | None = None,
    folder: Path | str | None = None,
    progress: Progress | Callable[[str], None] | None = None,
) -> SshConfig:
    """Write an ssh configuration with the machines of this project, for ssh, rsync, scp and editors.

    A machine is `Host <lease>`, and `Host <profile name>` too if no other has that name. With `install`, the
    user's ~/.ssh/config includes it. Call it again after machines were created or deleted.
    """
    project, tell = Project.at(folder), as_progress(progress)
    leases = project.open_leases()
    counts = Counter(lease.profile["name"] for lease in leases)
    entries, hosts, left_out = [], [], []
    for lease in leases:
        name = str(lease.profile["name"])
        names = list(dict.fromkeys([lease.id, *([name] if counts[name] == 1 else [])]))
        try:
            entries.append(_door(project, lease, "orch ssh-config").entry(names))
            hosts += names
        except OrchError as error:
            left_out.append(f"{lease.id}: {error.message}")
            notice(tell, left_out[-1])
    project.ignore_state()
    file = project.state / "ssh_config"
    atomic_write(file, "\n".join(entries).encode(), 0o600)
    config = (home or Path.home()) / ".ssh" / "config"
    if install:
        include(config, file)
    return SshConfig(str(file), hosts, include_line(file), is_included(config, file), left_out)


def _door(project: Project, held: Lease, again: str) -> SshAccess:
    with naming(project.ledger(held.id), again):
        access = ssh_access_of(project, held)
    if shutil.which("ssh") is None:
        raise UsageError("There is no `ssh` on this computer.", next_command="orch doctor")
    return access


def _ports(text: str) -> tuple[int, int]:
    here, _, there = text.partition(":")
    numbers = [int(each) if each.isdecimal() else 0 for each in (here, there or here)]
    if not all(0 < number < 65536 for number in numbers):
        raise UsageError(
            f"{text!r} is not a port. Write 8888, or 9000:8888 for port 9000 of this computer.",
            next_command="orch forward 8888",
        )
    return numbers[0], numbers[1]
