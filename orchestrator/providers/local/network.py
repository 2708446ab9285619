"""The private network link between this computer and one machine: 10.77.x.y/30; this computer has the lower
address.
"""

from __future__ import annotations

import contextlib
import ipaddress
import random
import socket
import subprocess
import zlib
from dataclasses import dataclass
from pathlib import Path

from orchestrator.providers.local.tools import tool

NETWORK = ipaddress.IPv4Network("10.77.0.0/16")
LINKS = 1 << 14
PORTS = range(20_000, 32_000)
"""The ports of machines, below those that systems use for outgoing connections."""


@dataclass(frozen=True)
class Link:
    """The /30 network of NETWORK with index `number`. `interface` is this computer's end."""

    number: int

    @property
    def interface(self) -> str:
        return f"orch{self.number}"

    @property
    def here(self) -> str:
        return str(NETWORK[self.number * 4 + 1])

    @property
    def there(self) -> str:
        return str(NETWORK[self.number * 4 + 2])


def plug(pid: int, machine: str) -> Link:
    """Create a link into the network namespace of process `pid`. It is named after the machine, and the
    kernel removes it with that namespace.

    The kernel guarantees that addresses are unique: it creates only one interface of a name, and the name
    determines the address.
    """
    first = zlib.crc32(machine.encode()) % LINKS
    taken = routes_into(NETWORK)
    for offset in range(LINKS):
        link = Link((first + offset) % LINKS)
        if any(ipaddress.ip_address(link.there) in network for network in taken):
            continue
        if _made(link, pid, machine):
            return link
    raise RuntimeError("every address of 10.77.0.0/16 is in use on this computer")


def _made(link: Link, pid: int, machine: str) -> bool:
    add = [
        tool("ip"),
        "link",
        "add",
        link.interface,
        "type",
        "veth",
        "peer",
        "name",
        "eth0",
        "netns",
        str(pid),
    ]
    made = subprocess.run(add, capture_output=True, text=True, check=False)
    if made.returncode:
        if Path("/sys/class/net", link.interface).exists():
            return False
        raise RuntimeError(f"no link to the machine: {made.stderr.strip()}")
    configure(
        f"link set {link.interface} alias {machine}",
        f"address add {link.here}/30 dev {link.interface}",
        f"link set {link.interface} up",
    )
    return True


def configure(*commands: str, pid: int | None = None, force: bool = False) -> str:
    """Run commands of ip(8) in the network namespace of `pid`, or in ours; return the output.

    Stops at the first failure, unless `force`. Raises RuntimeError with the message of `ip`.
    """
    inside = [] if pid is None else [tool("nsenter"), "--target", str(pid), "--net"]
    ip = [*inside, tool("ip"), *(["-force"] if force else []), "-batch", "-"]
    done = subprocess.run(ip, input="\n".join(commands) + "\n", text=True, capture_output=True, check=False)
    if done.returncode and not force:
        raise RuntimeError(f"the network cannot be set up: {done.stderr.strip()}")
    return done.stdout


def unplug(interface: str, machine: str) -> None:
    """Remove the link, unless the kernel already has; another machine may have its name now."""
    if interface and alias(interface) == machine:
        configure(f"link del {interface}", force=True)


def alias(interface: str) -> str:
    """Return the alias of an interface of this computer; "" if it has none or does not exist."""
    try:
        return Path("/sys/class/net", interface, "ifalias").read_text().strip()
    except OSError:
        return ""


def partition(pid: int, cut: bool) -> None:
    """Set the machine's end of the link down, or up again. This computer keeps its route, so packets are
    lost.
    """
    configure(f"link set eth0 {'down' if cut else 'up'}", pid=pid)


def free_port() -> int:
    """Return a port of 127.0.0.1 on which no process listens now."""
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        with contextlib.closing(socket.socket()) as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no free port on 127.0.0.1")


def answers_ssh(address: str, port: int, patience_s: float) -> bool:
    """Return whether an ssh server answers at that address."""
    try:
        with socket.create_connection((address, port), timeout=patience_s) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def routes_into(wanted: ipaddress.IPv4Network) -> list[ipaddress.IPv4Network]:
    """Return the networks inside `wanted` to which this computer already has another route."""
    try:
        lines = Path("/proc/net/route").read_text().splitlines()[1:]
    except OSError:
        return []
    found = []
    for line in lines:
        _, destination, _, _, _, _, _, mask = line.split()[:8]
        network = ipaddress.IPv4Network(f"{_address(destination)}/{_address(mask)}")
        if network.overlaps(wanted) and network.prefixlen > 0:
            found.append(network)
    return found


def _address(text: str) -> ipaddress.IPv4Address:
    return ipaddress.IPv4Address(int.from_bytes(bytes.fromhex(text), "little"))
