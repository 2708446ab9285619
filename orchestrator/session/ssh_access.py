"""The ssh command line, and the entry of ssh's configuration, for the machine of a lease."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import HostError
from orchestrator.hosts.atomic import atomic_write
from orchestrator.hosts.identity import known_hosts_line
from orchestrator.ledger import Lease
from orchestrator.providers import open_provider
from orchestrator.session.machines import serving
from orchestrator.session.project import Project


@dataclass(frozen=True)
class SshAccess:
    """How the user's ssh connects to one machine: with its verified host keys and the lease's private key
    only.

    `proxy`: the command that ssh connects through, () if it connects itself.
    """

    address: str
    port: int
    user: str
    options: Mapping[str, str]
    proxy: tuple[str, ...] = ()

    def argv(self, command: Sequence[str] = (), forwards: Sequence[str] = ()) -> list[str]:
        """The command line: a shell, or `command` there. `forwards`: in the form of ssh's option -L."""
        argv = ["ssh", "-F", "/dev/null", "-p", str(self.port)]
        for forward in forwards:
            argv += ["-L", forward]
        for name, value in self._settings():
            argv += ["-o", f"{name}={value}"]
        argv.append(f"{self.user}@{self.address}")
        return [*argv, "--", shlex.join(command)] if command else argv

    def entry(self, names: Sequence[str]) -> str:
        """The `Host` entry of ssh_config for these names."""
        own = (("HostName", self.address), ("Port", str(self.port)), ("User", self.user))
        lines = [f"    {name} {value}" for name, value in (*own, *self._settings())]
        return "\n".join([f"Host {' '.join(names)}", *lines]) + "\n"

    def _settings(self) -> Iterator[tuple[str, str]]:
        for name, value in self.options.items():
            plain = value.replace("%", "%%")  # ssh expands %h and others in the names of files
            yield name, f'"{plain}"' if " " in plain else plain
        if self.proxy:  # the rest of the option is a line of shell: no quotes around it
            yield "ProxyCommand", shlex.join(self.proxy).replace("%", "%%")


def ssh_access_of(project: Project, lease: Lease) -> SshAccess:
    """Return the ssh access to the lease's machine, at the address that its provider reports now. Raise
    HostError if it has no address.
    """
    provider = open_provider(lease.profile["cloud"])
    machine = serving(provider, lease)
    endpoint = provider.endpoint(machine) if machine else None
    if machine is None or not endpoint:
        raise HostError(f"The machine of {lease.id} does not answer.", next_command="orch status --live")
    known = project.known_hosts(lease.id).with_name("known_hosts.ssh")
    keys = "".join(known_hosts_line(machine.id, key) for key in endpoint.host_keys)
    atomic_write(known, keys.encode())
    options = {
        "IdentityFile": str(project.identity(lease.id)),
        "UserKnownHostsFile": str(known),
        "GlobalKnownHostsFile": "/dev/null",
        "HostKeyAlias": machine.id,
        "StrictHostKeyChecking": "yes",
        "IdentitiesOnly": "yes",
        "IdentityAgent": "none",
    }
    return SshAccess(endpoint.address, endpoint.port, endpoint.user, options, tuple(endpoint.proxy or ()))


def include_line(file: Path) -> str:
    """The line of ~/.ssh/config that reads `file`."""
    return f'Include "{file}"' if " " in str(file) else f"Include {file}"


def is_included(config: Path, file: Path) -> bool:
    try:
        lines = config.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return False
    return include_line(file) in (line.strip() for line in lines)


def include(config: Path, file: Path) -> None:
    """Put the line first in the user's configuration, where it applies to every host. Safe to repeat."""
    if is_included(config, file):
        return
    config.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    target = config.resolve()  # keep a link to a file elsewhere
    before = target.read_bytes() if target.exists() else b""
    mode = target.stat().st_mode & 0o777 if target.exists() else 0o600
    atomic_write(target, f"{include_line(file)}\n\n".encode() + before, mode)
