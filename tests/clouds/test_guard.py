"""The guard stops what would leave this computer, and lets pass what does not."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import http.server
import os
import socket
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import pytest

from tests.clouds.guard import GUARD, LeftTheComputer, allowed

ROOT = Path(__file__).resolve().parents[2]
STRANGER = "192.0.2.7"  # TEST-NET-1: nobody


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.3.2.1", "::1", "::ffff:127.0.0.1", "localhost", "10.77.4.2"]
)
def test_this_computer_is_allowed(host: str) -> None:
    assert allowed(host)


@pytest.mark.parametrize(
    "host",
    ["192.0.2.7", "10.78.0.1", "169.254.169.254", "2001:db8::1", "ec2.amazonaws.com", "::ffff:8.8.8.8"],
)
def test_others_are_not(host: str) -> None:
    assert not allowed(host)


def test_every_way_out_is_stopped_and_known() -> None:
    with GUARD.watched() as tried:
        with pytest.raises(LeftTheComputer):
            socket.create_connection((STRANGER, 80), timeout=1)
        with pytest.raises(LeftTheComputer):
            socket.socket().connect((STRANGER, 80))
        with pytest.raises(LeftTheComputer):
            socket.socket().connect_ex((STRANGER, 80))
        with pytest.raises(LeftTheComputer):
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", (STRANGER, 53))
        with pytest.raises(LeftTheComputer):
            socket.getaddrinfo("example.com", 443)
        with pytest.raises(LeftTheComputer):
            http.client.HTTPConnection("example.com", timeout=1).request("GET", "/")
        with pytest.raises(OSError):
            asyncio.run(asyncio.open_connection(STRANGER, 80))
    assert len(tried) >= 7


def test_what_a_library_swallows_is_known_all_the_same() -> None:
    with GUARD.watched() as tried, contextlib.suppress(OSError):
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"http://{STRANGER}/", timeout=1)
    assert tried


def test_a_server_of_this_computer_is_reached() -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        connection = http.client.HTTPConnection("localhost", server.server_port, timeout=5)
        connection.request("POST", "/")
        assert connection.getresponse().status == 501
        connection.close()
    assert GUARD.take() == []


def test_a_test_that_swallows_it_fails(tmp_path: Path) -> None:
    """The fixture of conftest.py, in a pytest of its own."""
    (tmp_path / "conftest.py").write_text("from tests.conftest import stays_on_this_computer\n")
    (tmp_path / "test_it.py").write_text(
        "import contextlib, socket\n"
        "def test_leaves():\n"
        "    with contextlib.suppress(OSError):\n"
        "        socket.getaddrinfo('example.com', 443)\n"
        "def test_stays():\n"
        "    socket.getaddrinfo('127.0.0.1', 443)\n"
    )
    inner = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert inner.returncode == 1, inner.stdout + inner.stderr
    assert "2 passed, 1 error" in inner.stdout
    assert "socket.getaddrinfo example.com" in inner.stdout
