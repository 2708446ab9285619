"""Clouds whose calls fail by script, and a project whose `up` ends where the guest's part begins.

Nothing boots: the guest's part is stood in for.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.leases import foreseen, provision
from orchestrator.providers.aws import provider as aws_provider
from orchestrator.providers.gcp import provider as gcp_provider
from orchestrator.providers.retry import RetryingProvider
from orchestrator.session import machines
from orchestrator.session.project import Project
from orchestrator.session.reach import Reached
from tests.clouds.aws_asking import as_new
from tests.clouds.gcp_client import Google
from tests.e2e.project import TINY_LOCK

HOST_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGtQzVn0VdkT0Wm2yQ0nXUkPSpPkXyBzQkq5dlqCqk0a"
PAGE = "<html><body>Sign in to the network<br></body></html>"
XHTML = "<html><body>Sign in to the network</body></html>"

PROFILE = """\
version: 1
name: job{number}
cloud: {cloud}
{place}
resources: {{cpus: 2, memory: {memory}, disk: 12 GiB}}
max_duration: 30m
train: {{command: python train.py}}
"""


@dataclass(frozen=True)
class Ground:
    """One emulated cloud: `fail` scripts a fault of a call, `calls` are those seen, `alive` what runs."""

    name: str
    place: str
    memory: str
    fail: Callable[[str, str, int], None]
    calls: Callable[[], tuple[str, ...]]
    alive: Callable[[str], list[str]]
    calm: Callable[[], None]


_AWS_FAULTS: dict[str, dict[str, Any]] = {
    "500": {"code": "InternalError"},
    "503": {"code": "Unavailable"},
    "cut": {"drop": True},
    "partial": {"partial": True},
    "slow": {"delay_s": 2.5},
    "page": {"body": PAGE},
    "xhtml": {"body": XHTML},
    "truncated": {
        "body": '<?xml version="1.0" encoding="UTF-8"?>\n<Answer><reque',
        "content_type": "text/xml",
    },
    "blank": {"blank": True},
    "throttled": {"code": "RequestLimitExceeded"},
    "expired": {"code": "RequestExpired"},
    "expired token": {"code": "ExpiredToken"},
    "denied": {"code": "UnauthorizedOperation"},
    "late 500": {"code": "InternalError", "after": True},
}
_GOOGLE_FAULTS: dict[str, dict[str, Any]] = {
    "500": {"kind": "backend"},
    "503": {"kind": "unavailable"},
    "cut": {"kind": "reset"},
    "partial": {"kind": "partial"},
    "slow": {"kind": "slow", "delay_s": 2.5},
    "page": {"kind": "html"},
    "xhtml": {"kind": "html"},
    "truncated": {"kind": "truncated"},
    "blank": {"kind": "blank"},
    "throttled": {"kind": "too_many"},
    "expired": {"kind": "unauthorized"},
    "expired token": {"kind": "unauthorized"},
    "denied": {"kind": "forbidden"},
    "late 500": {"kind": "backend", "after_effect": True},
    "forgotten": {"kind": "not_found"},
}
PASSING = ("500", "503", "cut", "partial", "slow", "page", "xhtml", "truncated", "blank", "throttled")
EXPIRED = ("expired", "expired token")
LASTING = (*PASSING, *EXPIRED, "denied")
AWS_CALLS = (
    "DescribeImages",
    "DescribeInstanceTypeOfferings",
    "DescribeInstances",
    "DescribeSecurityGroups",
    "DescribeSnapshots",
    "DescribeSubnets",
    "CreateTags",
    "GetParameter",
    "RunInstances",
    "TerminateInstances",
    "PutMetricAlarm",
    "DeleteAlarms",
)
GOOGLE_CALLS = (
    "compute.images.getFromFamily",
    "compute.images.list",
    "compute.instances.aggregatedList",
    "compute.instances.delete",
    "compute.instances.get",
    "compute.instances.getGuestAttributes",
    "compute.instances.insert",
    "compute.zoneOperations.get",
)
_NUMBERS = itertools.count()


def ground_of(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Ground:
    return _aws(request, monkeypatch) if request.param == "aws" else _google(request, monkeypatch)


def _aws(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Ground:
    cloud = as_new(request.getfixturevalue("shared_aws"))
    cloud.set(groups=["orch-ssh"], policy=None)
    for name, value in {**cloud.env, "ORCH_AWS_REGIONS": "us-east-1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(aws_provider, "answers_ssh", lambda *_: True)
    cloud.forget_requests()

    def fail(call: str, kind: str, times: int) -> None:
        cloud.faults({"action": call, "times": times, **_AWS_FAULTS[kind]})

    def alive(lease: str) -> list[str]:
        found = cloud.client("ec2").describe_instances()["Reservations"]
        instances = [i for each in found for i in each["Instances"]]
        return [
            i["InstanceId"]
            for i in instances
            if i["State"]["Name"] in ("pending", "running")
            and any(t["Key"] == "orch-lease" and t["Value"].startswith(lease) for t in i.get("Tags", ()))
        ]

    def calls() -> tuple[str, ...]:
        return tuple(one["action"] for one in cloud.state()["requests"])

    return Ground("aws", "region: us-east-1", "1 GiB", fail, calls, alive, cloud.clear_faults)


def _google(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Ground:
    google: Google = request.getfixturevalue("google")
    cloud = google.cloud
    for name, value in cloud.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(gcp_provider.seen, "host_keys", lambda _: (HOST_KEY,))
    monkeypatch.setattr(gcp_provider.GcpProvider, "_ready", lambda *_: True)
    monkeypatch.setattr(gcp_provider, "_APPEARING_S", 0.3)
    before = len(cloud.state()["requests"])

    def fail(call: str, kind: str, times: int) -> None:
        cloud.faults({"method": call, "times": times if times > 0 else 10_000, **_GOOGLE_FAULTS[kind]})

    def alive(lease: str) -> list[str]:
        return [
            each["name"]
            for each in cloud.state()["instances"]
            if each["status"] in ("PROVISIONING", "STAGING", "RUNNING")
            and each["labels"].get("orch-lease", "").startswith(lease)
        ]

    def calls() -> tuple[str, ...]:
        return tuple(one["method"] for one in cloud.state()["requests"][before:] if one.get("method"))

    return Ground("gcp", "zone: us-central1-a", "8 GiB", fail, calls, alive, cloud.clear_faults)


def project_in(tmp_path: Path, ground: Ground, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project whose `up` ends where the guest's part begins."""
    monkeypatch.setenv("ORCH_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(machines, "_POLL_SECONDS", 0.02)
    monkeypatch.setattr(machines, "_LIST_SECONDS", 0.1)
    for provider in (aws_provider.AwsProvider, gcp_provider.GcpProvider):
        monkeypatch.setattr(provider, "list_lag_s", 0.5)
    monkeypatch.setattr(provision, "_ready_plan", lambda _, planned: planned)  # test_before_up.py
    monkeypatch.setattr(provision, "local_stack", lambda *_: SimpleNamespace(python=Path(sys.executable)))
    monkeypatch.setattr(foreseen, "refuse_foreseen", lambda *_: None)
    monkeypatch.setattr(provision, "_prepare", lambda *_, **__: None)
    monkeypatch.setattr(provision, "open_session", _at_the_door)
    patience(monkeypatch, 30.0)
    (tmp_path / "train.py").write_text("print('hello')\n")
    (tmp_path / "requirements.lock").write_text(TINY_LOCK)
    text = PROFILE.format(number=next(_NUMBERS), cloud=ground.name, place=ground.place, memory=ground.memory)
    (tmp_path / "orch.yaml").write_text(text)
    return Project(tmp_path)


def patience(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """For how long a provider that is opened from now on repeats a call."""
    known = RetryingProvider.__init__.__kwdefaults__
    quick = {**known, "base_s": 0.01, "cap_s": 0.05, "deadline_s": seconds}
    monkeypatch.setattr(RetryingProvider.__init__, "__kwdefaults__", quick)


@contextmanager
def _at_the_door(*_: object, reached: Reached, **__: object) -> Iterator[SimpleNamespace]:
    """A key that travelled is replaced, as at the first contact."""
    if reached.machine.detail.get("host_key") == "injected":
        reached.provider.vouch(reached.machine, (HOST_KEY, HOST_KEY))
        reached.provider.vouch(reached.machine, (HOST_KEY,))
    yield SimpleNamespace(machine=reached.machine)
