"""The verb `meet`: several machines prove that each reaches every other, and compare their clocks.

Every machine runs it at the same time. It listens on its own port until all others have connected, and
connects to each of them. The answer of a connection is the time there.
"""

from __future__ import annotations

import argparse
import json
import socket
import struct
import threading
import time
from typing import Any, Dict, List, Optional, Set, Tuple

_PAUSE_S = 0.1
_ONE_TRY_S = 2.0
_SAID = struct.Struct("!I")
_TOLD = struct.Struct("!d")

Address = Tuple[str, int]


def main(argv: List[str]) -> int:
    """Arguments: --rank R --seconds S ADDRESS:PORT… (of every machine, by rank). Print what was reached."""
    parser = argparse.ArgumentParser(prog="meet")
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("addresses", nargs="+")
    given = parser.parse_args(argv)
    print(json.dumps(meet(given.rank, [_address(text) for text in given.addresses], given.seconds)))
    return 0


def _address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return host, int(port)


def meet(rank: int, addresses: List[Address], seconds: float) -> Dict[str, Any]:
    """Return which ranks were `reached`, which ones were `heard`, and by how many seconds the clock of each
    reached one is ahead of the one here (`ahead`, within half of `took`). `problem`: why this machine could
    not listen, "" if it could.
    """
    end = time.monotonic() + seconds
    others = [other for other in range(len(addresses)) if other != rank]
    heard: Set[int] = set()
    try:
        listener = _listen(addresses[rank][1])
    except OSError as error:
        return {"reached": [], "heard": [], "ahead": {}, "took": {}, "problem": str(error)}
    threading.Thread(target=_answer, args=(listener, heard), daemon=True).start()
    offsets: Dict[int, Tuple[float, float]] = {}
    while time.monotonic() < end and not (len(offsets) == len(others) and heard.issuperset(others)):
        for other in others:
            if other not in offsets and (found := _ask(addresses[other], rank)) is not None:
                offsets[other] = found
        time.sleep(_PAUSE_S)
    return {
        "reached": sorted(offsets),
        "heard": sorted(heard),
        "ahead": {str(other): ahead for other, (ahead, _) in offsets.items()},
        "took": {str(other): took for other, (_, took) in offsets.items()},
        "problem": "",
    }


def _listen(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("", port))
    listener.listen(64)
    return listener


def _answer(listener: socket.socket, heard: Set[int]) -> None:
    """Tell every caller the time here. A connection that says nothing useful is closed."""
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(_ONE_TRY_S)
            try:
                (rank,) = _SAID.unpack(_received(connection, _SAID.size))
                connection.sendall(_TOLD.pack(time.time()))
            except (OSError, struct.error):
                continue
            heard.add(rank)


def _ask(address: Address, rank: int) -> Optional[Tuple[float, float]]:
    """Return how far the clock there is ahead, and how long the answer took; None if there is no answer."""
    try:
        with socket.create_connection(address, _ONE_TRY_S) as connection:
            connection.settimeout(_ONE_TRY_S)
            begun, clock = time.monotonic(), time.time()
            connection.sendall(_SAID.pack(rank))
            (there,) = _TOLD.unpack(_received(connection, _TOLD.size))
            took = time.monotonic() - begun
    except (OSError, struct.error):
        return None
    return there - (clock + took / 2), took


def _received(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        more = connection.recv(count - len(found))
        if not more:
            break
        found += more
    return found
