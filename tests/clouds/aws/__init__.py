"""An AWS on this computer that is stricter than AWS: moto with its lies corrected, and real machines.

    with running(running_after_s=0, quotas={"L-DB2E81BA": 0}) as cloud:
        subprocess.run([...], env={**os.environ, **cloud.env})
        cloud.faults({"action": "RunInstances", "code": "InsufficientInstanceCapacity",
                      "zone": "us-east-1a", "times": -1})
        cloud.requests("RunInstances")

Settings are those of settings.Settings; the controls over HTTP are listed in door.py. By hand:
scripts/testcloud aws.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.forked import Forked

ROOT = Path(__file__).resolve().parents[3]
START_PATIENCE_S = 120
STOP_PATIENCE_S = 60


@dataclass(frozen=True)
class Cloud:
    """A test cloud that runs. `env` is what a client needs in its environment."""

    env: Mapping[str, str]
    url: str

    def client(self, service: str, region: str = "us-east-1", **config: Any) -> Any:
        """A boto3 client of it, without retries unless `config` (botocore's Config) says otherwise."""
        keys = self.env["AWS_ACCESS_KEY_ID"], self.env["AWS_SECRET_ACCESS_KEY"]
        return _client(self.url, *keys, service, region, json.dumps(config, sort_keys=True))

    def faults(self, *faults: Mapping[str, Any]) -> None:
        """Failures to come, each a faults.Fault by its fields."""
        self._control("POST", "faults", list(faults))

    def clear_faults(self) -> None:
        self._control("DELETE", "faults")

    def set(self, **settings: Any) -> None:
        self._control("POST", "settings", settings)

    def state(self) -> dict[str, Any]:
        """Requests seen, instances (hidden ones too), faults still to come."""
        found: dict[str, Any] = self._control("GET", "state")
        return found

    def requests(self, action: str) -> list[dict[str, Any]]:
        """The requests of that action so far, in order: parameters, status, code, region, zone, ..."""
        return [request for request in self.state()["requests"] if request["action"] == action]

    def forget_requests(self) -> None:
        self._control("DELETE", "requests")

    def instances(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._control("GET", "instances")
        return found

    def interrupt(self, instance: str, notice_s: float = 120) -> None:
        """A spot interruption: announced inside, carried out after `notice_s`."""
        self._control("POST", "interrupt", {"instance": instance, "notice_s": notice_s})

    def rebalance(self, instance: str) -> None:
        self._control("POST", "rebalance", {"instance": instance})

    def freeze(self, instance: str) -> None:
        """Its guest hangs: it answers nobody, and no timer of its own comes."""
        self._control("POST", "freeze", {"instance": instance})

    def kill(self, instance: str) -> None:
        """Its host fails."""
        self._control("POST", "kill", {"instance": instance})

    def _control(self, method: str, what: str, value: Any = None) -> Any:
        data = None if value is None else json.dumps(value).encode()
        request = urllib.request.Request(f"{self.url}/_test/{what}", data=data, method=method)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=30) as response:
            return json.load(response)


@functools.cache
def _client(url: str, access_key: str, secret_key: str, service: str, region: str, config: str) -> Any:
    """Kept, for making one costs more than most calls."""
    import boto3
    from botocore.config import Config

    session = boto3.session.Session(access_key, secret_key, region_name=region)
    options = {"retries": {"total_max_attempts": 1}, **json.loads(config)}
    return session.client(service, endpoint_url=url, config=Config(**options))


@contextmanager
def running(*, state: Path | None = None, **settings: Any) -> Iterator[Cloud]:
    """A test cloud in a process of its own; nothing of it is left afterwards, even where it crashed.

    Its machines are in `state`, by default a new folder; it is removed.
    """
    with suppress(ImportError):  # without boto3 the tests that speak to it are skipped
        import tests.clouds.aws_models  # noqa: F401

    state = state or Path(tempfile.mkdtemp(prefix="orch-aws-"))
    options = [f"--set={name}={json.dumps(value)}" for name, value in settings.items()]
    with (state / "server.log").open("wb") as log:
        server = Forked(
            "tests.clouds.aws",
            ["--port=0", f"--state={state}", *options],
            prepared_by="tests.clouds.aws.prepared",
            cwd=ROOT,
            env=os.environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        )
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        line = server.stdout.readline()
        if not line:
            raise RuntimeError(f"the test cloud did not start: {(state / 'server.log').read_text()[-3000:]}")
        env = json.loads(line)
        yield Cloud(env, env["AWS_ENDPOINT_URL"])
    finally:
        _stop(server, state)


def _stop(server: subprocess.Popen[bytes], state: Path) -> None:
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.close()
    try:
        server.wait(STOP_PATIENCE_S)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
    server.stdout.close()
    _end_machines(state)
    shutil.rmtree(state, ignore_errors=True)


def _end_machines(state: Path) -> None:
    if not (state / "machines").exists():
        return
    from orchestrator.providers.local.provider import LocalProvider

    local = LocalProvider(state)
    for machine in local.list({}):
        local.delete(machine)
