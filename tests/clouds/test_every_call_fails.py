"""Each call of a cloud's API that up, status and down make fails once, or for good, on either cloud.

A fault that passes stops nothing. One that stays ends the command with an error that is classified and names
what exists. In every case `down` leaves nothing afterwards. Nothing boots: the guest's part is stood in for.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.api import foreseen, held, provision, standing
from orchestrator.api import lease as leasing
from orchestrator.api.awaiting import Reached
from orchestrator.api.ending import down
from orchestrator.api.folder import Folder
from orchestrator.errors import Fault, OrchError, ProviderError
from orchestrator.providers.aws import provider as aws_provider
from orchestrator.providers.gcp import provider as gcp_provider
from orchestrator.providers.retry import RetryingProvider
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
    calls: Callable[[], set[str]]
    alive: Callable[[str], list[str]]
    calm: Callable[[], None]


AWS_FAULTS: dict[str, dict[str, Any]] = {
    "500": {"code": "InternalError"},
    "cut": {"drop": True},
    "page": {"body": PAGE},
    "xhtml": {"body": XHTML},
    "throttled": {"code": "RequestLimitExceeded"},
    "expired": {"code": "RequestExpired"},
    "late 500": {"code": "InternalError", "after": True},
}
GOOGLE_FAULTS: dict[str, dict[str, Any]] = {
    "500": {"kind": "backend"},
    "cut": {"kind": "reset"},
    "page": {"kind": "html"},
    "throttled": {"kind": "too_many"},
    "expired": {"kind": "unauthorized"},
    "late 500": {"kind": "backend", "after_effect": True},
}
AWS_CALLS = (
    "DescribeImages",
    "DescribeInstanceTypeOfferings",
    "DescribeInstances",
    "DescribeSecurityGroups",
    "DescribeSubnets",
    "CreateTags",
    "GetParameter",
    "RunInstances",
    "TerminateInstances",
)
GOOGLE_CALLS = (
    "compute.images.getFromFamily",
    "compute.instances.aggregatedList",
    "compute.instances.delete",
    "compute.instances.get",
    "compute.instances.getGuestAttributes",
    "compute.instances.insert",
    "compute.zoneOperations.get",
)
_NUMBERS = itertools.count()


@pytest.fixture(params=["aws", "gcp"])
def ground(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ground]:
    made = _aws(request, monkeypatch) if request.param == "aws" else _google(request, monkeypatch)
    yield made
    made.calm()


def _aws(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Ground:
    cloud = as_new(request.getfixturevalue("shared_aws"))
    cloud.set(groups=["orch-ssh"], policy=None)
    for name, value in {**cloud.env, "ORCH_AWS_REGIONS": "us-east-1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(aws_provider, "answers_ssh", lambda *_: True)
    cloud.forget_requests()

    def fail(call: str, kind: str, times: int) -> None:
        cloud.faults({"action": call, "times": times, **AWS_FAULTS[kind]})

    def alive(lease: str) -> list[str]:
        found = cloud.client("ec2").describe_instances()["Reservations"]
        instances = [i for each in found for i in each["Instances"]]
        return [
            i["InstanceId"]
            for i in instances
            if i["State"]["Name"] in ("pending", "running")
            and any(t["Key"] == "orch-lease" and t["Value"].startswith(lease) for t in i.get("Tags", ()))
        ]

    def calls() -> set[str]:
        return {one["action"] for one in cloud.state()["requests"]}

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
        cloud.faults({"method": call, "times": times if times > 0 else 10_000, **GOOGLE_FAULTS[kind]})

    def alive(lease: str) -> list[str]:
        return google.listed(f"name:orch-{lease}* AND status=RUNNING")

    def calls() -> set[str]:
        return {one["method"] for one in cloud.state()["requests"][before:] if one.get("method")}

    return Ground("gcp", "zone: us-central1-a", "8 GiB", fail, calls, alive, cloud.clear_faults)


@pytest.fixture
def project(tmp_path: Path, ground: Ground, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """A project whose `up` ends where the guest's part begins."""
    monkeypatch.setenv("ORCH_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(held, "_POLL_SECONDS", 0.02)
    monkeypatch.setattr(held, "_LIST_SECONDS", 0.1)
    for provider in (aws_provider.AwsProvider, gcp_provider.GcpProvider):
        monkeypatch.setattr(provider, "list_lag_s", 0.5)
    monkeypatch.setattr(provision, "local_stack", lambda *_: None)
    monkeypatch.setattr(foreseen, "refuse", lambda *_: None)
    monkeypatch.setattr(provision, "require_gpus", lambda _: None)
    monkeypatch.setattr(provision, "_installed", lambda *_: None)
    monkeypatch.setattr(provision, "open_session", _at_the_door)
    patience(monkeypatch, 30.0)
    (tmp_path / "train.py").write_text("print('hello')\n")
    (tmp_path / "requirements.lock").write_text(TINY_LOCK)
    text = PROFILE.format(number=next(_NUMBERS), cloud=ground.name, place=ground.place, memory=ground.memory)
    (tmp_path / "orch.yaml").write_text(text)
    return Folder(tmp_path)


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
    yield SimpleNamespace(machine=reached.machine, watch_idleness=lambda: None, confine=lambda: None)


def up(project: Folder) -> Any:
    return leasing.up(project.root / "orch.yaml", folder=project.root)


def walk(project: Folder) -> None:
    made = up(project)
    assert up(project).machine == made.machine
    (seen,) = standing.status(folder=project.root, ask=True)
    assert seen.machine == made.machine
    assert down(folder=project.root).machines == (made.machine,)


def nothing_is_left(project: Folder, ground: Ground) -> None:
    """After one more `down`, in calm."""
    ground.calm()
    assert isinstance(RetryingProvider.__init__.__kwdefaults__, dict)
    RetryingProvider.__init__.__kwdefaults__["deadline_s"] = 30.0
    name = project.leases()[-1].id if project.leases() else ""
    down(folder=project.root)
    assert not name or ground.alive(name) == []
    assert project.open_leases() == []


def calls_of(ground: Ground) -> tuple[str, ...]:
    return AWS_CALLS if ground.name == "aws" else GOOGLE_CALLS


def test_the_calls_are_those_that_are_listed_here(project: Folder, ground: Ground) -> None:
    walk(project)
    assert ground.calls() - {"GetCallerIdentity"} == set(calls_of(ground))


@pytest.mark.parametrize("kinds", [("500", "cut"), ("page", "throttled"), ("xhtml", "late 500")])
def test_what_passes_stops_nothing(project: Folder, ground: Ground, kinds: tuple[str, str]) -> None:
    """Each call fails twice in a row."""
    for call, kind in itertools.product(calls_of(ground), kinds):
        if ground.name == "aws" or kind != "xhtml":  # Google's API speaks JSON alone
            ground.fail(call, kind, 1)
    walk(project)
    nothing_is_left(project, ground)


CASES = [
    *(("aws", call, "500") for call in AWS_CALLS),
    *(("aws", f"{verb}Instances", "expired") for verb in ("Run", "Describe", "Terminate")),
    ("aws", "CreateTags", "expired"),
    *(("gcp", f"compute.instances.{verb}", "page") for verb in ("insert", "get", "delete", "aggregatedList")),
    *(("gcp", f"compute.instances.{verb}", "expired") for verb in ("insert", "get", "delete")),
]


@pytest.mark.parametrize(("ground", "call", "kind"), CASES, indirect=["ground"])
def test_what_stays_is_classified_and_names_what_exists(
    project: Folder, ground: Ground, call: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    patience(monkeypatch, 0.2)
    ground.fail(call, kind, -1)
    refused: list[OrchError] = []
    for verb in (lambda: up(project), lambda: down(folder=project.root)):
        try:
            verb()
        except OrchError as error:
            refused.append(error)
    for error in refused:
        assert isinstance(error, ProviderError), repr(error)
        wanted = Fault.AUTH if kind == "expired" else Fault.TRANSIENT
        assert error.fault is wanted, error.message
        assert kind != "expired" or "renew" in error.message
        assert error.exists and ("$" in error.exists or error.exists.startswith("Nothing")), error.exists
        assert error.next_command
    ground.calm()
    if ground.alive("job"):
        assert "runs on, at $" in str(refused[-1].exists) or "may have been made" in str(refused[-1].exists)
    nothing_is_left(project, ground)


@pytest.mark.parametrize("ground", ["gcp"], indirect=True)
def test_an_operation_that_google_does_not_know_fails_nothing(
    project: Folder, ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(GOOGLE_FAULTS, "forgotten", {"kind": "not_found"})
    ground.fail("compute.zoneOperations.get", "forgotten", -1)
    walk(project)
    nothing_is_left(project, ground)
