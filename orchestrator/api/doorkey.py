"""The door of a lease's machine: opened with the lease's own key once the machine has proved itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from orchestrator import hosts
from orchestrator.api.folder import Folder
from orchestrator.errors import HostKeyError
from orchestrator.ledger import Lease
from orchestrator.model import Endpoint, Host, Machine, Provider
from orchestrator.providers import vouching

_CONNECT_SECONDS = 60.0


def proven(place: Folder, lease: Lease, provider: Provider, machine: Machine, endpoint: Endpoint) -> Host:
    """A connection whose host key nobody else can have.

    Where the machine was made with a key that travelled to it, that key serves for this once: the
    machine makes another, which the provider and this folder know it by from then on.
    """
    host = connect(place, lease, machine, endpoint)
    voucher = vouching(provider)
    if voucher is None or machine.detail.get("host_key") != "injected":
        return host
    from orchestrator.hosts.renewal import renew

    def vouch(keys: Sequence[str]) -> None:
        voucher.vouch(machine, keys)

    try:
        return renew(
            host,
            endpoint.host_keys[-1],
            machine_id=machine.id,
            known_hosts=place.known_hosts(lease.id),
            vouch=vouch,
            reconnect=lambda key: connect(place, lease, machine, replace(endpoint, host_keys=(key,))),
        )
    except BaseException:
        host.close()
        raise


def connect(place: Folder, lease: Lease, machine: Machine, endpoint: Endpoint) -> Host:
    """The door of a machine, opened with the lease's own key after its host key was verified."""
    try:
        return hosts.connect(
            endpoint,
            identity=place.identity(lease.id),
            known_hosts=place.known_hosts(lease.id),
            machine_id=machine.id,
            timeout=_CONNECT_SECONDS,
        )
    except HostKeyError as error:
        error.exists = error.exists or f"{machine.id} runs on, at ${machine.price:.2f}/h; nothing was sent."
        error.next_command = error.next_command or "orch down --discard"
        raise
