"""Connect to a lease's machine with the lease's own key, after the machine proved its host key."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from orchestrator import hosts
from orchestrator.errors import HostError, HostKeyError
from orchestrator.ledger import Lease
from orchestrator.model import Endpoint, Host, Machine, Provider
from orchestrator.session import team
from orchestrator.session.project import Project

_CONNECT_SECONDS = 60.0
_ANSWER_SECONDS = 10.0


def connect_verified(
    project: Project, lease: Lease, provider: Provider, machine: Machine, endpoint: Endpoint
) -> Host:
    """Connect with a host key that was generated on the machine.

    If the machine was created with a key that was sent to it, that key is accepted once, to replace it:
    provider and `known_hosts` then have the new key.
    """
    if not _travelled(machine):
        return connect(project, lease, machine, endpoint)
    with _alone(project, lease):
        now = provider.find(machine) or machine
        vouched = provider.endpoint(now) or endpoint
        if not _travelled(now):  # another command was faster
            return connect(project, lease, now, vouched)
        return _renewed(project, lease, provider, now, vouched)


def _travelled(machine: Machine) -> bool:
    return bool(machine.detail.get("host_key") == "injected")


@contextmanager
def _alone(project: Project, lease: Lease) -> Iterator[None]:
    """Hold a lock in the block, so that one command of the project at a time replaces the key."""
    with open(project.known_hosts(lease.id).with_name("door.lock"), "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _renewed(
    project: Project, lease: Lease, provider: Provider, machine: Machine, endpoint: Endpoint
) -> Host:
    from orchestrator.hosts.renewal import renew

    def vouch(keys: Sequence[str]) -> None:
        provider.vouch(machine, keys)

    host = connect(project, lease, machine, endpoint)
    try:
        return renew(
            host,
            endpoint.host_keys[-1],
            machine_id=machine.id,
            known_hosts=project.known_hosts(lease.id),
            vouch=vouch,
            reconnect=lambda key: connect(project, lease, machine, replace(endpoint, host_keys=(key,))),
        )
    except BaseException:
        host.close()
        raise


def connect(
    project: Project, lease: Lease, machine: Machine, endpoint: Endpoint, timeout: float = _CONNECT_SECONDS
) -> Host:
    """Connect with the lease's own key after verifying the machine's host key."""
    if team.is_key_elsewhere(project.identity(lease.id), lease):
        raise HostError(
            team.key_elsewhere(lease, machine.id),
            exists=f"{machine.id} is still running, at ${machine.price:.2f}/h.",
            next_command=team.KEY_ADVICE.format(lease=lease.id),
        )
    try:
        return hosts.connect(
            endpoint,
            identity=project.identity(lease.id),
            known_hosts=project.known_hosts(lease.id),
            machine_id=machine.id,
            timeout=timeout,
        )
    except HostKeyError as error:
        running = f"{machine.id} is still running, at ${machine.price:.2f}/h; nothing was sent."
        error.exists = error.exists or running
        error.next_command = error.next_command or "orch down --discard"
        raise


def is_answering(host: Host) -> bool:
    """Whether the connection still works: it may be broken, or its machine stopped."""
    try:
        return host.run(("true",), timeout=_ANSWER_SECONDS).returncode == 0
    except HostError:
        return False
