"""orch ssh, forward, ssh-config: your own ssh to the machine."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from orchestrator.cli.options import Json, Lease
from orchestrator.cli.output import emit, guarded
from orchestrator.cli.terminal import ours

_AsArgv = Annotated[bool, typer.Option("--json", help="Print the ssh command line instead of running it.")]


@guarded
def ssh(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[CMD...]", help="The command. Default: a login shell.")
    ] = None,
    forwards: Annotated[
        list[str] | None,
        typer.Option("-L", metavar="PORT:HOST:PORT", help="Forward a port, as ssh -L does. Repeatable."),
    ] = None,
    lease: Lease = None,
    as_json: _AsArgv = False,
) -> None:
    """Open a shell on the machine, or run a command there.

    The connection is made only if the machine shows its verified host key. Options of orch come before the
    command; everything after its first word is passed to it.
    """
    from orchestrator.api import ssh as ssh_verbs

    argv = ssh_verbs.ssh_command(command or (), forwards=forwards or (), lease=lease)
    if as_json:
        emit("ssh", {"argv": argv}, True, "")
    else:
        ssh_verbs.exec_ssh(argv)


@guarded
def forward(
    ports: Annotated[
        list[str],
        typer.Argument(metavar="PORT...", help="8888, or 9000:8888 for port 9000 of this computer."),
    ],
    lease: Lease = None,
    as_json: _AsArgv = False,
) -> None:
    """Forward ports of the machine to this computer, until Ctrl-C, for a notebook or a server on the machine.

    Only this computer can connect to them.
    """
    from orchestrator.api import ssh as ssh_verbs

    argv, told = ssh_verbs.forward_command(ports, lease=lease)
    if as_json:
        emit("forward", {"argv": argv, "ports": told}, True, "")
        return
    print(ours("\n".join([*told, "Ctrl-C ends this."])), file=sys.stderr, flush=True)
    ssh_verbs.exec_ssh(argv)


@guarded
def ssh_config(
    install: Annotated[
        bool, typer.Option("--install", help="Include it in ~/.ssh/config, once for this project.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Write an ssh configuration with this project's machines, for ssh, rsync, scp and editors.

    The host names are those of the leases, as `orch status` shows them, and of the profiles if unique. Repeat
    it after machines were created or deleted.
    """
    from orchestrator.api import ssh as ssh_verbs
    from orchestrator.cli import progress

    found = ssh_verbs.ssh_config(install=install, progress=progress.progress())
    if not found.hosts:
        text = f"No machine of this project has an address now; {found.file} is empty."
    elif found.included:
        text = f"Next: ssh {found.hosts[-1]}"
    else:
        text = (
            f"Next: ssh -F {found.file} {found.hosts[-1]}\n"
            f"For ssh {found.hosts[-1]} and your editor: orch ssh-config --install adds this line to "
            f"~/.ssh/config: {found.include}"
        )
    emit("ssh-config", found.as_json(), as_json, text)
