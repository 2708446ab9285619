"""Network bytes, and the quality of the connection: round trips, retransmitted segments."""

from __future__ import annotations

import socket
import struct
from typing import Any, Dict, Iterator, List, Optional, Tuple

from ..processes import read

_SOCK_DIAG = 4  # NETLINK_SOCK_DIAG
_BY_FAMILY, _DONE, _ERROR = 20, 3, 2
_DUMP = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
_ESTABLISHED = 1 << 1
_WITH_INFO = 1 << 1
_INFO = 2  # INET_DIAG_INFO: a struct tcp_info
_HEADER = struct.Struct("=IHHII")
_MESSAGE = 72  # struct inet_diag_msg
_ROUND_TRIP = 68  # tcpi_rtt in struct tcp_info, microseconds
_SSH = 22
_BATCH = 1 << 16
_PATIENCE = 0.2


class Network:
    """The network of one process's namespace since the job began, without loopback."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._began = self._bytes()
        self._again = self._resent()

    def sample(self) -> Dict[str, Any]:
        """Return bytes `received` and `sent`; `resent`, retransmitted TCP segments; `rtt_ms`, the median
        round trip of the open connections without ssh. None if unknown.
        """
        now, again = self._bytes(), self._resent()
        known = now is not None and self._began is not None
        return {
            "received": now[0] - self._began[0] if known and now and self._began else None,
            "sent": now[1] - self._began[1] if known and now and self._began else None,
            "resent": None if again is None or self._again is None else max(0, again - self._again),
            "rtt_ms": _median(list(round_trips())),
        }

    def _bytes(self) -> Optional[Tuple[int, int]]:
        text = read(f"/proc/{self._pid}/net/dev")
        return None if text is None else transferred(text)

    def _resent(self) -> Optional[int]:
        return retransmitted(read(f"/proc/{self._pid}/net/snmp") or "")


def transferred(text: str) -> Tuple[int, int]:
    """Return (received, sent) bytes of all interfaces but loopback, from /proc/net/dev."""
    received = sent = 0
    for line in text.splitlines()[2:]:
        name, _, counters = line.partition(":")
        fields = counters.split()
        if name.strip() != "lo" and len(fields) >= 9:
            received, sent = received + int(fields[0]), sent + int(fields[8])
    return received, sent


def retransmitted(text: str) -> Optional[int]:
    """Return the number of retransmitted TCP segments, from /proc/net/snmp."""
    lines = [line.split() for line in text.splitlines() if line.startswith("Tcp:")]
    if len(lines) != 2 or "RetransSegs" not in lines[0]:
        return None
    return int(lines[1][lines[0].index("RetransSegs")])


def round_trips(*, loopback: bool = False) -> Iterator[float]:
    """Return milliseconds for each established TCP connection, as the kernel smooths them, if it reports
    them.
    """
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            yield from _ask(family, loopback)
        except (OSError, AttributeError, struct.error):
            continue


def _ask(family: int, loopback: bool) -> Iterator[float]:
    request = struct.pack("=BBBBI48x", family, socket.IPPROTO_TCP, _WITH_INFO, 0, _ESTABLISHED)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as asking:
        asking.settimeout(_PATIENCE)
        asking.send(_HEADER.pack(_HEADER.size + len(request), _BY_FAMILY, _DUMP, 1, 0) + request)
        while True:
            block = asking.recv(_BATCH)
            for kind, body in _messages(block):
                if kind in (_DONE, _ERROR):
                    return
                found = _round_trip(body, family, loopback)
                if found is not None:
                    yield found


def _messages(block: bytes) -> Iterator[Tuple[int, bytes]]:
    while len(block) >= _HEADER.size:
        length, kind, _, _, _ = _HEADER.unpack_from(block)
        if length < _HEADER.size:
            return
        yield kind, block[_HEADER.size : length]
        block = block[(length + 3) & ~3 :]


def _round_trip(body: bytes, family: int, loopback: bool) -> Optional[float]:
    if len(body) < _MESSAGE:
        return None
    here, there = struct.unpack_from("!HH", body, 4)
    peer = body[24:28] if family == socket.AF_INET else body[24:40]
    if _SSH in (here, there) or (not loopback and _is_loopback(peer)):
        return None
    rest = body[_MESSAGE:]
    while len(rest) >= 4:
        length, kind = struct.unpack_from("=HH", rest)
        if kind == _INFO and length >= 4 + _ROUND_TRIP + 4:
            return float(struct.unpack_from("=I", rest, 4 + _ROUND_TRIP)[0]) / 1000
        if length < 4:
            return None
        rest = rest[(length + 3) & ~3 :]
    return None


def _is_loopback(address: bytes) -> bool:
    if len(address) == 4:
        return address[0] == 127
    return address == b"\0" * 15 + b"\1" or (address[:12] == b"\0" * 10 + b"\xff\xff" and address[12] == 127)


def _median(values: List[float]) -> Optional[float]:
    return round(sorted(values)[len(values) // 2], 3) if values else None
