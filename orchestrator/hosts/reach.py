"""Check whether a machine can connect to the servers from which it will download."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

from orchestrator.model import Host
from orchestrator.model.plain import last_words

_CONNECT = """
import socket, sys
for place in sys.argv[1:]:
    host, _, port = place.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=3).close()
    except OSError as error:
        sys.exit(f"{place}: {error.strerror or error}")
"""


def unreachable(host: Host, python: str, urls: Iterable[str]) -> str | None:
    """Return why `host` cannot connect to the servers of these http and https URLs; None if it can.

    `python`: an interpreter on the host. The answer is a clause: "it cannot reach example.org:443: …".
    """
    places = sorted({_server(url) for url in urls})
    done = host.run(("timeout", "8", python, "-I", "-c", _CONNECT, *places), timeout=30)
    if done.returncode == 0:
        return None
    return f"it cannot reach {last_words(done.stderr, 200) or ', '.join(places)}."


def _server(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}"
