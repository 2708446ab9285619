"""The metadata service of one instance, version 2 only, at 169.254.169.254 inside the machine's own network.

The listening socket is made by a thread that has entered the machine's network namespace for that moment;
the service itself is a thread of this process. Needs root (tier netns).
"""

from __future__ import annotations

import ctypes
import http.server
import json
import os
import secrets
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from orchestrator.providers.local.tools import tool

ADDRESS = "169.254.169.254"
_CLONE_NEWNET = 0x40000000


@dataclass
class Metadata:
    """What an instance can learn about itself. `instance_action` is set when its end is announced."""

    values: dict[str, str]
    user_data: bytes
    identity: dict[str, Any]
    tokens_required: bool = True
    enabled: bool = True
    instance_action: dict[str, str] | None = None
    rebalance_at: float | None = None
    seen: list[str] = field(default_factory=list)

    def answer(self, path: str) -> bytes | None:
        """The body at that path below /latest/, or None where there is none."""
        if path in ("user-data", "user-data/"):
            return self.user_data or None
        if path == "dynamic/instance-identity/document":
            return json.dumps(self.identity).encode()
        if not path.startswith("meta-data"):
            return b"dynamic\nmeta-data\nuser-data" if path == "" else None
        return self._metadata(path.removeprefix("meta-data").strip("/"))

    def _metadata(self, name: str) -> bytes | None:
        values = dict(self.values)
        if self.instance_action is not None:
            values["spot/instance-action"] = json.dumps(self.instance_action)
            values["spot/termination-time"] = self.instance_action["time"]
        if self.rebalance_at is not None:
            when = datetime.fromtimestamp(self.rebalance_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            values["events/recommendations/rebalance"] = json.dumps({"noticeTime": when})
        if name in values:
            return values[name].encode()
        prefix = name + "/" if name else ""
        below = {key.removeprefix(prefix) for key in values if key.startswith(prefix)}
        children = sorted({key.partition("/")[0] + ("/" if "/" in key else "") for key in below})
        return "\n".join(children).encode() if children else None


class Service:
    """Serves `metadata` inside the network namespace of process `pid` until closed."""

    def __init__(self, pid: int, metadata: Metadata) -> None:
        inside = [tool("nsenter"), "--target", str(pid), "--net", tool("ip")]
        subprocess.run(
            [*inside, "address", "replace", f"{ADDRESS}/32", "dev", "lo"], check=True, capture_output=True
        )
        listener = _in_network_of(pid, _listen)
        self._server = http.server.ThreadingHTTPServer(
            (ADDRESS, 80), _handler(metadata), bind_and_activate=False
        )
        self._server.socket.close()
        self._server.socket = listener
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _listen() -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((ADDRESS, 80))
    listener.listen(64)
    return listener


def _in_network_of(pid: int, make: Callable[[], socket.socket]) -> socket.socket:
    """What `make` returns, made by a thread of that network namespace; no other thread notices."""
    made: list[socket.socket | BaseException] = []

    def enter() -> None:
        try:
            fd = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            try:
                libc = ctypes.CDLL(None, use_errno=True)
                if libc.setns(fd, _CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), "setns")
                made.append(make())
            finally:
                os.close(fd)
        except BaseException as error:
            made.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    found = made[0]
    if isinstance(found, BaseException):
        raise found
    return found


def _handler(metadata: Metadata) -> type[http.server.BaseHTTPRequestHandler]:
    tokens: dict[str, float] = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        server_version = "EC2ws"
        sys_version = ""
        protocol_version = "HTTP/1.1"

        def do_PUT(self) -> None:
            metadata.seen.append(f"PUT {self.path}")
            seconds = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds", "")
            if not metadata.enabled or "X-Forwarded-For" in self.headers:
                return self._send(403)
            if self.path.rstrip("/") != "/latest/api/token":
                return self._send(404)
            if not seconds.isdigit() or not 1 <= int(seconds) <= 21600:
                return self._send(400)
            token = secrets.token_urlsafe(40)
            tokens[token] = time.monotonic() + int(seconds)
            return self._send(200, token.encode(), {"X-Aws-Ec2-Metadata-Token-Ttl-Seconds": seconds})

        def do_GET(self) -> None:
            metadata.seen.append(f"GET {self.path}")
            token = self.headers.get("X-aws-ec2-metadata-token")
            if not metadata.enabled:
                return self._send(403)
            if (token is None and metadata.tokens_required) or (
                token is not None and tokens.get(token, 0.0) < time.monotonic()
            ):
                return self._send(401)
            version, _, path = self.path.lstrip("/").partition("/")
            if not version:
                return self._send(200, b"1.0\n2021-07-15\nlatest")
            body = metadata.answer(path)
            return self._send(404) if body is None else self._send(200, body)

        def _send(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(body)))
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            """Nothing on our standard error."""

    return Handler
