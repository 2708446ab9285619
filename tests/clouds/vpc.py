"""The network between the real machines of an emulated cloud: a bridge for each group that may talk.

A machine of this computer reaches this computer alone. Machines that a cloud's rules connect get one more
link each, by which they reach each other at the addresses that the cloud shows. Ports are not looked at: what
rules let through is decided in aws_reach.py and gcp_reach.py.
"""

from __future__ import annotations

import contextlib
import threading
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.providers.local.network import configure

_INTERFACE = "vpc0"


@dataclass(frozen=True)
class Member:
    """A machine that runs: its first process, and its address."""

    pid: int
    address: str


@dataclass
class Network:
    """The groups of one cloud, by name."""

    _groups: dict[str, frozenset[Member]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def set(self, groups: Mapping[str, frozenset[Member]]) -> None:
        """Connect these groups and no others. One that stays as it is keeps its connections."""
        with self._lock:
            for name in [*self._groups]:
                if groups.get(name) != self._groups[name]:
                    _disconnect(_bridge(name), self._groups.pop(name))
            for name, members in groups.items():
                if name not in self._groups and len(members) > 1:
                    self._groups[name] = members
                    _connect(_bridge(name), members)


def _connect(bridge: str, members: frozenset[Member]) -> None:
    configure(f"link add {bridge} type bridge", f"link set {bridge} up")
    for member in members:
        port = _port(member)
        configure(
            f"link add {port} type veth peer name {_INTERFACE} netns {member.pid}",
            f"link set {port} master {bridge}",
            f"link set {port} up",
        )
        others = (other.address for other in members if other != member)
        routes = [f"route add {one}/32 dev {_INTERFACE} src {member.address}" for one in others]
        configure(f"link set {_INTERFACE} up", *routes, pid=member.pid)


def _disconnect(bridge: str, members: frozenset[Member]) -> None:
    """The link of a machine that ended is gone already."""
    with contextlib.suppress(RuntimeError):
        configure(*(f"link del {_port(member)}" for member in members), f"link del {bridge}", force=True)


def _bridge(name: str) -> str:
    return f"vpc{zlib.crc32(name.encode()):08x}"


def _port(member: Member) -> str:
    return f"vpc-{member.pid}"
