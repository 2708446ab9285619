"""The network of a group of machines: a bridge on this computer, and one more interface in each member.

The bridge has no address on this computer, so only members reach the members through it. In a member, routing
rules drop packets from the group that are not for the group's ports; the member cannot change these rules.
The kernel holds the complete state: interfaces end with their machines, and their alias, which is written
last, is the only record.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import ipaddress
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import Fault, ProviderError
from orchestrator.providers.local.network import alias, configure, routes_into

NETWORK = ipaddress.IPv4Network("10.78.0.0/16")
SUBNETS = tuple(NETWORK.subnets(new_prefix=24))
INTERFACE = "group0"
_DEVICES = Path("/sys/class/net")
_BRIDGE = "orch-"
_CONNECTING = range(32_768, 65_535)
"""The source ports of a member's connections; rules cannot contain the last port, 65535."""
_PROTOCOLS = (6, 17, 33, 132, 136)
"""Protocols that have ports: TCP, UDP, DCCP, SCTP, UDP-Lite. A rule without a protocol would apply to ARP
too.
"""


@dataclass(frozen=True)
class Member:
    """A machine in a group. `interface`: this computer's end of the link to it; `mark`: its name on this
    computer.
    """

    pid: int
    mark: str
    interface: str

    @property
    def port(self) -> str:
        """Return the name of its interface at the bridge."""
        return port_of(self.interface)


def port_of(interface: str) -> str:
    return f"{interface}g"


def join(machines: Path, group: str, members: Sequence[Member], ports: range) -> list[str]:
    """Connect the members, disconnect all others, and return the address of each."""
    with _locked(machines):
        bridge, subnet = _bridge(machines, group)
        named = {member.port: member for member in members}
        for port in _ports(bridge):
            if port not in named:
                _remove(port)
        return [_plugged(bridge, subnet, member, ports) for member in members]


def separate(machines: Path, group: str) -> None:
    """Remove the bridge, and with it the members' interfaces."""
    bridge = _name(machines, group)
    if _exists(bridge):
        with _locked(machines):
            _remove(*_ports(bridge), bridge)


def sweep(machines: Path) -> None:
    """Remove bridges of groups without machines, unless another process is changing groups now."""
    if _deserted(machines):
        with contextlib.suppress(BlockingIOError), _locked(machines, fcntl.LOCK_NB):
            _remove(*_deserted(machines))


def unplug(interface: str, mark: str) -> None:
    """Remove a dead machine's interface at the bridge, unless the kernel has removed it already."""
    if interface and alias(port_of(interface)).split("/")[0] == mark:
        _remove(port_of(interface))


def isolate(member: Member, cut: bool) -> None:
    """Drop all packets between the member and the others, or stop dropping them."""
    if not alias(member.port):
        raise ProviderError(Fault.INVALID, f"The machine {member.mark} is in no group.")
    configure(f"link set {member.port} {'down' if cut else 'up'}")


@contextlib.contextmanager
def _locked(machines: Path, how: int = 0) -> Iterator[None]:
    """Hold the lock for changing groups of these machines; the kernel releases it when the process ends."""
    machines.mkdir(parents=True, exist_ok=True, mode=0o700)
    fd = os.open(machines, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | how)
        yield
    finally:
        os.close(fd)


def _bridge(machines: Path, group: str) -> tuple[str, ipaddress.IPv4Network]:
    """Return the group's bridge and subnet, created if missing."""
    bridge = _name(machines, group)
    said = alias(bridge)
    if said:
        owner, _, subnet = said.partition("/")
        if owner != group:
            raise ProviderError(Fault.CONFLICT, f"The bridge {bridge} belongs to {owner}.", code="GroupName")
        return bridge, ipaddress.IPv4Network(subnet)
    chosen = _free_subnet(group)
    if not _exists(bridge):
        configure(f"link add {bridge} type bridge")
    configure(
        f"link set {bridge} addrgenmode none",
        f"link set {bridge} up",
        f"link set {bridge} alias {group}/{chosen}",
    )
    return bridge, chosen


def _free_subnet(group: str) -> ipaddress.IPv4Network:
    """Return a subnet to which this computer has no route."""
    taken = routes_into(NETWORK)
    taken += [ipaddress.IPv4Network(said.partition("/")[2]) for one in _bridges("") if (said := alias(one))]
    first = zlib.crc32(group.encode()) % len(SUBNETS)
    for subnet in (*SUBNETS[first:], *SUBNETS[:first]):
        if not any(subnet.overlaps(network) for network in taken):
            return subnet
    raise RuntimeError(f"every address of {NETWORK} is in use on this computer")


def _plugged(bridge: str, subnet: ipaddress.IPv4Network, member: Member, ports: range) -> str:
    """Return the member's address. Its interface is created if it is missing or incomplete."""
    mark, _, rest = alias(member.port).partition("/")
    there = rest.partition("/")[0] if mark == member.mark else ""
    if there and _master(member.port) != bridge:
        raise ProviderError(
            Fault.CONFLICT, f"The machine {member.mark} is in another group.", code="InAnotherGroup"
        )
    wanted = f"{ports[0]}-{ports[-1]}"
    if there and rest == f"{there}/{wanted}":
        return there
    _remove(member.port)
    address = there or _free_address(bridge, subnet)
    hardware = "02:00:" + ":".join(f"{byte:02x}" for byte in ipaddress.IPv4Address(address).packed)
    configure(
        f"link add {member.port} type veth peer name {INTERFACE} address {hardware} netns {member.pid}",
        f"link set {member.port} addrgenmode none",
        f"link set {member.port} master {bridge}",
    )
    _admit(member.pid, address, subnet.prefixlen, wanted)
    configure(
        f"link set {member.port} up",
        f"link set {member.port} alias {member.mark}/{address}/{wanted}",
    )
    return address


def _admit(pid: int, address: str, length: int, ports: str) -> None:
    """Set the member's address, and rules that drop packets that are neither for `ports` nor answers."""
    arriving = f"iif {INTERFACE} ipproto 6"
    local, drop = 100, [f"iif {INTERFACE} ipproto {number} blackhole" for number in _PROTOCOLS]
    answers = f"sport {ports} dport {_CONNECTING[0]}-{_CONNECTING[-1]}"
    rules = [f"{arriving} to {address} {end} lookup local" for end in (f"dport {ports}", answers)] + drop
    numbered = list(enumerate(rules, 10))
    again = [f"rule del pref {number}" for number, _ in numbered]
    configure(f"rule add pref {local} lookup local", *again, pid=pid, force=True)
    configure(*(f"rule add pref {number} {rule}" for number, rule in numbered), pid=pid)
    configure("rule del pref 0", pid=pid, force=True)
    if configure("rule show", pid=pid).startswith("0:"):
        raise RuntimeError(
            "the rules are not in force, so the machine would accept connections of its group at every port"
        )
    configure(
        f"link set {INTERFACE} addrgenmode none",
        f"address add {address}/{length} dev {INTERFACE}",
        f"link set {INTERFACE} up",
        pid=pid,
    )


def _free_address(bridge: str, subnet: ipaddress.IPv4Network) -> str:
    taken = {alias(port).split("/")[1] for port in _ports(bridge) if alias(port)}
    for address in subnet.hosts():
        if str(address) not in taken:
            return str(address)
    raise RuntimeError(f"every address of {subnet} is in use in the group")


def _name(machines: Path, group: str) -> str:
    """Return the name of the group's bridge: 15 characters, beginning with the prefix of these machines."""
    return f"{_prefix(machines)}{_digest(group)[:6]}"


def _prefix(machines: Path) -> str:
    return f"{_BRIDGE}{_digest(str(machines))[:4]}"


def _digest(text: str) -> str:
    return base64.b32encode(hashlib.sha256(text.encode()).digest()).decode().lower()


def _bridges(prefix: str) -> list[str]:
    found = _DEVICES.glob(f"{prefix or _BRIDGE}*")
    return [path.name for path in found if (path / "bridge").exists()]


def bridges(machines: Path) -> list[str]:
    """Return the bridges of these machines' groups."""
    return _bridges(_prefix(machines))


def _deserted(machines: Path) -> list[str]:
    return [bridge for bridge in bridges(machines) if not _ports(bridge)]


def _ports(bridge: str) -> list[str]:
    return sorted(path.name for path in (_DEVICES / bridge / "brif").glob("*"))


def _master(port: str) -> str:
    try:
        return (_DEVICES / port / "master").readlink().name
    except OSError:
        return ""


def _exists(interface: str) -> bool:
    return (_DEVICES / interface).exists()


def _remove(*interfaces: str) -> None:
    """Remove interfaces; those that do not exist any more are skipped."""
    there = [name for name in interfaces if _exists(name)]
    if there:
        configure(*(f"link del {name}" for name in there), force=True)
    for name in there:
        if _exists(name):
            raise RuntimeError(f"the interface {name} cannot be removed")
