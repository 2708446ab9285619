"""Run commands and copy files on a machine over ssh (`connect`), or on this computer (`hosts.here`).

Both implement `model.Host`.
"""

from __future__ import annotations

from pathlib import Path

from orchestrator.model import Endpoint, Host

__all__ = ["connect"]


def connect(
    endpoint: Endpoint, *, identity: Path, known_hosts: Path, machine_id: str, timeout: float = 30
) -> Host:
    """Log in to a machine after its identity was verified.

    The host key is compared with `endpoint.host_keys`, and with the pin of `machine_id` in `known_hosts`,
    before a user name or a command is sent; the first success writes the pin. Only `identity`, a private key
    file without a passphrase, is offered: no agent and none of the user's keys. If the machine does not
    answer yet, connecting is retried for `timeout` seconds.

    Raises HostKeyError for a key that the provider did not report, HostError for everything else.
    """
    from orchestrator.hosts.ssh import connect as connect_ssh

    return connect_ssh(
        endpoint, identity=identity, known_hosts=known_hosts, machine_id=machine_id, timeout=timeout
    )
