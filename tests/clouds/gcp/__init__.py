"""Google Cloud, emulated: Compute Engine with real machines, and Cloud Storage, for Google's own clients.

    with running(machines=False) as cloud:
        os.environ.update(cloud.env)
        cloud.faults({"method": "compute.instances.insert", "zone": "us-central1-a", "kind": "stockout"})

By hand: python -m tests.clouds.gcp
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.forked import Forked

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Cloud:
    """A running emulator: `env` leads clients to it, `url` is where it listens."""

    env: Mapping[str, str]
    url: str

    def faults(self, *faults: Mapping[str, Any]) -> None:
        """Script what befalls the next calls; the fields are those of faults.Fault."""
        self._ask("POST", "faults", list(faults))

    def clear_faults(self) -> None:
        self._ask("DELETE", "faults")

    def state(self) -> dict[str, Any]:
        """Requests seen, instances, disks, operations, faults to come, settings."""
        found: dict[str, Any] = self._ask("GET", "state")
        return found

    def calls(self, method: str) -> list[dict[str, Any]]:
        """The requests of one method (compute.instances.insert) so far, oldest first."""
        return [request for request in self.state()["requests"] if request.get("method") == method]

    def settings(self, **changed: Any) -> None:
        """Change world.Settings from now on."""
        self._ask("POST", "settings", changed)

    def preempt(self, instance: str, notice_s: float = 30) -> None:
        """Take a Spot instance away: its guest is told at once, its plug is pulled `notice_s` later."""
        self._ask("POST", f"instances/{instance}/preempt", {"notice_s": notice_s})

    def befall(self, instance: str, what: str) -> None:
        """kill, freeze, thaw, partition, heal, fill_disk or free_disk a machine."""
        self._ask("POST", f"instances/{instance}/{what}", {})

    def _ask(self, verb: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}/_test/{path}", data, headers, method=verb)
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
            return json.load(answer)


@contextmanager
def running(*, state: Path | None = None, **settings: Any) -> Iterator[Cloud]:
    """An emulator in a process of its own, with world.Settings; it and its machines end with the block."""
    with tempfile.TemporaryDirectory(prefix="orch-gcp-", ignore_cleanup_errors=True) as folder:
        home = state or Path(folder)
        words = ["--state", str(home)]
        for name, value in settings.items():
            words += ["--set", f"{name}={json.dumps(value)}"]
        server = Forked(
            "tests.clouds.gcp", words, prepared_by="tests.clouds.gcp.prepared", cwd=ROOT, env=os.environ,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            line = server.stdout.readline()
            if not line:
                raise RuntimeError(f"the emulator ended at once, with status {server.wait(30)}")
            env: dict[str, str] = json.loads(line)
            yield Cloud(env, env["STORAGE_EMULATOR_HOST"])
        finally:
            server.stdin.close()
            _ended(server, home)
            server.stdout.close()


def _ended(server: subprocess.Popen[str], home: Path) -> None:
    """Wait for its end; where it hangs, end it and what it leaves."""
    try:
        server.wait(60)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
    if not (home / "machines").exists():
        return
    from orchestrator.providers.local.provider import LocalProvider

    local = LocalProvider(home)
    for machine in local.list({}):
        local.delete(machine)
