"""Accounts as they are on their first day: nobody has prepared anything for orch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

NEW_NETWORK = {
    "name": "default-allow-ssh",
    "network": "default",
    "priority": 65534,
    "allowed": [{"IPProtocol": "tcp", "ports": ["22"]}],
    "sourceRanges": ["0.0.0.0/0"],
}
"""cloud.google.com/firewall/docs/firewalls: what a default network comes with, among others."""


@contextmanager
def fresh(cloud: str, **settings: Any) -> Iterator[Any]:
    """AWS: a default network that lets nobody in. Google: no API enabled, and ssh open to the world."""
    if cloud == "aws":
        from tests.clouds import aws

        with aws.running(groups=[], **settings) as made:
            yield made
    else:
        from tests.clouds import gcp

        with gcp.running(**settings) as running:
            running.settings(
                firewalls=[NEW_NETWORK],
                disabled=["compute.googleapis.com", "cloudresourcemanager.googleapis.com"],
            )
            yield running
