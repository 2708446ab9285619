"""The user's own ssh to the machine of a lease: as a command line, and as an entry of ssh's configuration."""

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
class Door:
    """How ssh reaches one machine: only by its verified host keys and the lease's own key.

    `proxy`: the command that ssh connects through, () if it connects itself.
    """

    address: str
    port: int
    user: str
    options: Mapping[str, str]
    proxy: tuple[str, ...] = ()

    def argv(self, command: Sequence[str] = (), forwards: Sequence[str] = ()) -> list[str]:
        """The command line: a shell, or `command` there. `forwards` as ssh's -L takes them."""
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


def open_door(project: Project, lease: Lease) -> Door:
    """Return the way to the machine of the lease, as its provider reports it now. Raise HostError if it
    has no address.
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
    return Door(endpoint.address, endpoint.port, endpoint.user, options, tuple(endpoint.proxy or ()))


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
