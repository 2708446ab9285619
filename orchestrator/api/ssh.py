"""ssh: open the machine for the user, with the host key that orch verified."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from orchestrator.errors import HostError, UsageError
from orchestrator.hosts.identity import known_hosts_line
from orchestrator.leases.remains import naming
from orchestrator.providers import open_provider
from orchestrator.session.machines import serving
from orchestrator.session.project import Project


def ssh_command(
    command: Sequence[str] = (), *, lease: str | None = None, folder: Path | str | None = None
) -> list[str]:
    """The `ssh` command line for the machine.

    It uses the lease's key and known_hosts, nothing of the user's.
    """
    project = Project.at(folder)
    held = project.lease(lease)
    with naming(project.ledger(held.id), shlex.join(["orch", "ssh", *command])):
        provider = open_provider(held.profile["cloud"])
        machine = serving(provider, held)
        endpoint = provider.endpoint(machine) if machine else None
        if machine is None or not endpoint:
            raise HostError(f"The machine of {held.id} does not answer.", next_command="orch status --live")
    if shutil.which("ssh") is None:
        raise UsageError("There is no `ssh` on this computer.", next_command="orch doctor")
    alias = machine.id
    known = project.known_hosts(held.id).with_name("known_hosts.ssh")
    known.write_text("".join(known_hosts_line(alias, key) for key in endpoint.host_keys))
    options = {
        "UserKnownHostsFile": str(known),
        "GlobalKnownHostsFile": "/dev/null",
        "HostKeyAlias": alias,
        "StrictHostKeyChecking": "yes",
        "IdentitiesOnly": "yes",
        "IdentityAgent": "none",
    }
    argv = ["ssh", "-F", "/dev/null", "-i", str(project.identity(held.id)), "-p", str(endpoint.port)]
    for name, value in options.items():
        argv += ["-o", f'{name}="{value}"' if " " in value else f"{name}={value}"]
    if endpoint.proxy:  # the rest of the option is parsed by a shell, so it is not quoted
        argv += ["-o", "ProxyCommand=" + shlex.join(endpoint.proxy).replace("%", "%%")]
    argv += [f"{endpoint.user}@{endpoint.address}"]
    return [*argv, "--", shlex.join(command)] if command else argv


def exec_ssh(argv: Sequence[str]) -> NoReturn:
    """Replace this process by ssh, which keeps the terminal, signals and exit code."""
    os.execvp(argv[0], list(argv))
