"""The third cloud itself: machines as JSON over HTTP on this computer. It lists late, starts slowly, keeps
deadlines by its own clock, remembers what ended, and fails every few requests before or after the effect.

A machine is a folder here. It ends with its folder and with every process that works there.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.server
import json
import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.crash.cloud import end_processes

LISTED_AFTER_S = 0.3
RUNS_AFTER_S = 0.4
GONE_AFTER_S = 0.2
HICCUP_EVERY = 7
TOKEN = "third-token-of-a-test"

GIB = 1 << 30
SOLD = (
    {"type": "t.small", "cpus": 2, "memory": 4 * GIB, "zone": "north-1-a", "price": 0.02, "spot": False},
    {"type": "t.small", "cpus": 2, "memory": 4 * GIB, "zone": "north-1-a", "price": 0.01, "spot": True},
    {"type": "t.small", "cpus": 2, "memory": 4 * GIB, "zone": "south-1-a", "price": 0.03, "spot": False},
    {"type": "t.large", "cpus": 8, "memory": 32 * GIB, "zone": "north-1-b", "price": 0.16, "spot": False},
)

Answer = tuple[int, Any]


@dataclass
class Service:
    """`ahead`: seconds by which its clock is ahead of this computer's. `lenient`: it forgets deadlines.
    `failing`: it answers nothing but that it is busy.
    """

    folder: Path
    url: str = ""
    ahead: float = 0.0
    lenient: bool = False
    failing: bool = False
    machines: dict[str, dict[str, Any]] = field(default_factory=dict)
    groups: dict[str, dict[str, Any]] = field(default_factory=dict)
    _requests: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def environment(self) -> dict[str, str]:
        """What a user exports."""
        return {"THIRD_URL": self.url, "THIRD_TOKEN": TOKEN}

    def alive(self) -> list[str]:
        """The names of the machines that really exist, listed already or not."""
        with self._lock:
            return sorted(each["name"] for each in self.machines.values() if self._state(each) != "gone")

    def answer(self, method: str, target: str, token: str, body: bytes) -> Answer:
        """Status and JSON of one request."""
        if token != f"Bearer {TOKEN}":
            return 401, {"code": "bad_token"}
        with self._lock:
            self._requests += 1
            number, hiccup = divmod(self._requests, HICCUP_EVERY)
            if self.failing or (not hiccup and number % 2):
                return 503, {"code": "busy"}
            done = self._carried_out(method, target, body)
            return (503, {"code": "busy"}) if not hiccup else done

    def _carried_out(self, method: str, target: str, body: bytes) -> Answer:
        parts = urlsplit(target)
        kind, _, identity = parts.path.strip("/").partition("/")
        if kind == "types":
            return 200, list(SOLD)
        if kind == "groups":
            return self._grouped(method, unquote(identity), body)
        if kind != "machines":
            return 404, {"code": "no_such_path"}
        if not identity:
            tags = {key: values[0] for key, values in parse_qs(parts.query).items()}
            return self._created(json.loads(body)) if method == "POST" else self._listed(tags)
        return self._one(method, unquote(identity))

    def _created(self, wanted: dict[str, Any]) -> Answer:
        """The name is the caller's: while a machine has it, it is that machine that is returned."""
        for known in self.machines.values():
            if known["name"] == wanted["name"] and self._state(known) != "gone":
                return 200, self._shown(known)
        if (wanted["type"], wanted["zone"]) not in {(each["type"], each["zone"]) for each in SOLD}:
            return 422, {"code": "no_such_type"}
        seed = f"{wanted['name']} {len(self.machines)}"
        identity = f"t-{hashlib.sha256(seed.encode()).hexdigest()[:16]}"
        made = {**wanted, "id": identity, "number": len(self.machines) + 1, "made_at": self._now()}
        base = self.folder / identity
        base.mkdir()
        detail = {"base": str(base), "power_off": ["touch", str(base / "off")], "spot": wanted["spot"]}
        self.machines[identity] = {**made, "detail": detail, "ended_at": None}
        return 201, self._shown(self.machines[identity])

    def _listed(self, tags: Mapping[str, str]) -> Answer:
        old = [each for each in self.machines.values() if self._now() - each["made_at"] >= LISTED_AFTER_S]
        found = [each for each in old if self._state(each) != "gone"]
        return 200, [self._shown(each) for each in found if tags.items() <= each["tags"].items()]

    def _one(self, method: str, identity: str) -> Answer:
        machine = self.machines.get(identity)
        if machine is None:
            return 404, {"code": "no_such_machine"}
        if method == "DELETE" and machine["ended_at"] is None:
            self._end(machine, self._now())
        gone = self._state(machine) == "gone"
        return (410 if gone else 200), self._shown(machine)

    def _grouped(self, method: str, name: str, body: bytes) -> Answer:
        """A group is what was put last. It stays while one of its machines is stopping."""
        if method == "GET":
            return 200, [one for one, each in self.groups.items() if not self._there(each["machines"])]
        if method == "DELETE":
            members = self.groups.get(name, {"machines": []})["machines"]
            if any(self._state(self.machines[each]) == "stopping" for each in members):
                return 409, {"code": "in_use"}
            return 200, self.groups.pop(name, {})
        wanted = json.loads(body)
        members = wanted["machines"]
        if any(
            each not in self.machines or self._state(self.machines[each]) != "running" for each in members
        ):
            return 422, {"code": "not_running"}
        taken = {each for other in self.groups if other != name for each in self.groups[other]["machines"]}
        if not taken.isdisjoint(members):
            return 409, {"code": "in_another_group"}
        self.groups[name] = wanted
        return 200, [f"10.0.0.{self.machines[each]['number'] % 254 + 1}" for each in members]

    def _there(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if self._state(self.machines[name]) != "gone"]

    def reaches(self, machine: str, address: str, port: int) -> bool:
        """Whether a connection from the machine to the address would be made."""
        with self._lock:
            found = [each for each in self.groups.values() if machine in each["machines"]]
            numbers = {self.machines[other]["number"] for each in found for other in each["machines"]}
            inside = address in {f"10.0.0.{number % 254 + 1}" for number in numbers}
            return inside and any(port in range(*each["ports"]) for each in found)

    def _state(self, machine: dict[str, Any]) -> str:
        due = machine["made_at"] + machine["lasts"]
        if machine["ended_at"] is None and not self.lenient and self._now() >= due:
            self._end(machine, due)
        if machine["ended_at"] is not None:
            return "gone" if self._now() - machine["ended_at"] >= GONE_AFTER_S else "stopping"
        return "running" if self._now() - machine["made_at"] >= RUNS_AFTER_S else "pending"

    def _end(self, machine: dict[str, Any], at: float) -> None:
        machine["ended_at"] = at
        base = self.folder / machine["id"]
        end_processes(base)
        shutil.rmtree(base)

    def _shown(self, machine: dict[str, Any]) -> dict[str, Any]:
        state = self._state(machine)
        where = {"address": f"192.0.2.{machine['number'] % 254 + 1}", "host_key": _host_key(machine["id"])}
        reach = where if state == "running" else {}
        return {**machine, **reach, "state": state, "now": self._now()}

    def _now(self) -> float:
        return time.time() + self.ahead


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Service]:
    """The cloud, reachable at its `url` meanwhile. Its machines are in `folder`, which is made."""
    folder.mkdir()
    made = Service(folder)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            token = self.headers.get("Authorization", "")
            status, answer = made.answer(self.command, self.path, token, body)
            text = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_POST = do_PUT = do_DELETE = do_GET

        def log_message(self, *_: object) -> None:
            """Nothing on standard error."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        end_processes(folder)


def _host_key(identity: str) -> str:
    """A well-formed public key that belongs to nobody."""
    parts = (b"ssh-ed25519", hashlib.sha256(identity.encode()).digest())
    blob = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return f"ssh-ed25519 {base64.b64encode(blob).decode()}"
