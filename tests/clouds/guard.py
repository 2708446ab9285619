"""No test leaves this computer: whoever tries to is stopped, and the test that ran then fails.

An audit hook of the interpreter sees every connection and every name that is looked up in this process,
whatever library asks. Allowed are this computer and the links to its own machines. Environments are
built by uv in processes of their own, which this does not see.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import sys
import threading
from collections.abc import Iterator
from typing import Any

ALLOWED = tuple(
    ipaddress.ip_network(text) for text in ("127.0.0.0/8", "::1/128", "10.77.0.0/16", "0.0.0.0/32")
)
_EVENTS = ("socket.connect", "socket.sendto", "socket.getaddrinfo", "socket.gethostbyname")
_CLOUDS = ("amazonaws.com", "googleapis.com", "google.internal", "169.254.169.254")
_INTERNET = (socket.AF_INET, socket.AF_INET6)


class LeftTheComputer(OSError):
    """Something in this process tried to reach another computer."""


class Guard:
    """What was tried so far. One for a process: a hook cannot be taken back."""

    def __init__(self) -> None:
        self._tried: list[str] = []
        self._lock = threading.Lock()
        self._installed = False
        self._registry = False

    def install(self) -> None:
        """From now on nothing gets out; may be called again."""
        if not self._installed:
            self._installed = True
            sys.addaudithook(self._hear)

    @contextlib.contextmanager
    def watched(self) -> Iterator[list[str]]:
        """What is tried meanwhile, complete when this is left; for tests of the guard itself."""
        found: list[str] = []
        with self._lock:
            before, self._tried = self._tried, found
        try:
            yield found
        finally:
            with self._lock:
                self._tried = before

    @contextlib.contextmanager
    def registry(self) -> Iterator[None]:
        """Packages may be downloaded meanwhile, by whatever index is configured; clouds stay out of reach."""
        self._registry = True
        try:
            yield
        finally:
            self._registry = False

    def take(self) -> list[str]:
        """What was tried since the last time."""
        with self._lock:
            found, self._tried = self._tried, []
        return found

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in _EVENTS:
            return
        host = _host(event, arguments)
        if host is None or allowed(host):
            return
        if self._registry and not host.endswith(_CLOUDS):
            return
        with self._lock:
            self._tried.append(f"{event} {host}")
        raise LeftTheComputer(f"a test must not leave this computer: {event} {host}")


def allowed(host: str) -> bool:
    """Whether that name or address is this computer or one of its machines."""
    if host in ("", "localhost", "localhost.localdomain", socket.gethostname()):
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return any((mapped or address) in network for network in ALLOWED)


def _host(event: str, arguments: tuple[Any, ...]) -> str | None:
    if event in ("socket.getaddrinfo", "socket.gethostbyname"):
        host = arguments[0]
    else:
        connection, address = arguments[0], arguments[1]
        if connection.family not in _INTERNET or not isinstance(address, tuple):
            return None
        host = address[0]
    if host is None:
        return None
    return host.decode(errors="replace") if isinstance(host, bytes | bytearray) else str(host)


GUARD = Guard()
