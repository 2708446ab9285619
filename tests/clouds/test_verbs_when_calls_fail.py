"""Every verb, every call that it makes of a cloud, every fault: survived if it passes, told if it stays.

By default each call of each verb meets one of the faults; ORCH_EVERY_FAULT=1 runs the whole table, a test for
each verb.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from orchestrator.cli.app import app
from orchestrator.errors import HostError
from orchestrator.leases import gc as gc_
from orchestrator.model import backoff as repeating
from orchestrator.providers.aws import clients as aws_clients
from orchestrator.providers.gcp import calls as gcp_calls
from orchestrator.providers.gcp import readiness_calls
from orchestrator.session import session
from orchestrator.session.project import Project
from tests.clouds.failing import EXPIRED, LASTING, PASSING, Ground, patience

WHOLE = os.environ.get("ORCH_EVERY_FAULT") == "1"
pytestmark = pytest.mark.timeout(7200 if WHOLE else 900)
ARRIVED = "The door was reached."
COSTS = re.compile(r"\$|cost money")
COMMAND = re.compile(r"(orch|aws|gcloud|export|unset) ")
DRAFT = {"stack": {}, "data": {}, "parity": None, "timings": {}}


@dataclass(frozen=True)
class Verb:
    """A command line, and whether a machine is there when it begins."""

    name: str
    argv: tuple[str, ...]
    leased: bool = True

    def of(self, ground: Ground) -> list[str]:
        name, *rest = (ground.name if word == "CLOUD" else word for word in self.argv)
        return [name, "--json", *rest]  # what follows the command of ssh is that command's


VERBS = (
    Verb("up", ("up", "orch.yaml", "--yes"), leased=False),
    Verb("up again", ("up", "orch.yaml", "--yes")),
    Verb("plan", ("plan", "orch.yaml")),
    Verb("status", ("status", "--live")),
    Verb("train", ("train", "--run-id", "two", "--parallel")),
    Verb("pull", ("pull", "one")),
    Verb("logs", ("logs", "one")),
    Verb("ssh", ("ssh", "true")),
    Verb("doctor", ("doctor", "CLOUD")),
    Verb("gc", ("gc", "--cloud", "CLOUD", "--discard")),
    Verb("down", ("down", "--discard")),
)


@dataclass(frozen=True)
class Outcome:
    code: int
    value: dict[str, Any]
    printed: str

    @property
    def error(self) -> dict[str, Any] | None:
        return self.value.get("error")

    @property
    def succeeded(self) -> bool:
        arrived = self.error is not None and self.error["message"] == ARRIVED
        return arrived or (self.code == 0 and self.value.get("ready", True))


def invoke(verb: Verb, ground: Ground) -> Outcome:
    done = CliRunner().invoke(app, verb.of(ground))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise AssertionError(f"{verb.name} has a fault of its own: {done.exception!r}") from done.exception
    try:
        value = json.loads(done.stdout)
    except ValueError:
        raise AssertionError(f"{verb.name} printed no JSON: {done.stdout!r} {done.stderr!r}") from None
    return Outcome(done.exit_code, value, done.stdout + done.stderr)


Calm = dict[str, tuple[Outcome, list[str]]]


@pytest.fixture(autouse=True)
def door(project: Project, ground: Ground, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Verbs that work on the machine end where ssh begins."""

    def arrive(*_: object) -> None:
        raise HostError(ARRIVED)

    monkeypatch.chdir(project.root)
    monkeypatch.setattr(session, "connect_verified", arrive)
    monkeypatch.setattr(session, "local_stack", lambda *_: SimpleNamespace(python=Path(sys.executable)))
    monkeypatch.setattr(session.stack, "interpreter", lambda _: None)
    monkeypatch.setattr(gc_, "MARGIN", timedelta(days=-1))
    monkeypatch.setattr(gc_, "_POLL_S", 0.05)
    yield
    patience(monkeypatch, 30.0)
    ground.calm()
    done = CliRunner().invoke(app, ["down", "--discard", "--json"])
    assert done.exit_code == 0, done.output
    assert ground.alive("job") == []


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that wait for an answer no longer than two seconds."""
    monkeypatch.setattr(aws_clients, "_READ_S", 2.0)
    monkeypatch.setattr(gcp_calls, "_CALL_S", 2.0)
    monkeypatch.setattr(readiness_calls, "_CALL_S", 2.0)


def begin(verb: Verb, project: Project, ground: Ground) -> None:
    """With a machine and a run that was not fetched; or without, for the verb that makes one."""
    ground.calm()
    leases = project.open_leases()
    serves = bool(leases) and bool(ground.alive("job"))
    if leases and not (verb.leased and serves):
        assert invoke(VERBS[-1], ground).code == 0
    if not verb.leased:
        return
    if not serves:
        assert invoke(VERBS[0], ground).code == 0
    (lease,) = project.open_leases()
    if "one" not in lease.runs:
        project.ledger(lease.id).append("run.started", run_id="one", draft=DRAFT)


@pytest.fixture(params=[[verb] for verb in VERBS] if WHOLE else [VERBS], ids=lambda verbs: verbs[0].name)
def verbs(request: pytest.FixtureRequest) -> Sequence[Verb]:
    """Those that one test tries."""
    return tuple(request.param)


@pytest.fixture
def calm(project: Project, ground: Ground, verbs: Sequence[Verb]) -> Calm:
    """What each verb comes to while nothing fails, and the calls that it makes."""
    found = {}
    for verb in verbs:
        begin(verb, project, ground)
        before = len(ground.calls())
        done = invoke(verb, ground)
        assert done.succeeded, done.printed
        found[verb.name] = done, sorted(set(ground.calls()[before:]))
    return found


def batches(calls: Sequence[str], kinds: Sequence[str]) -> Iterator[dict[str, str]]:
    """The faults of one go, by call: of the whole table each alone, else each call with one of the kinds."""
    if WHOLE:
        yield from ({call: kind} for call in calls for kind in kinds)
    else:
        yield dict(zip(calls, itertools.cycle(kinds), strict=False))


def test_one_fault_of_each_call_is_survived(
    project: Project, ground: Ground, verbs: Sequence[Verb], calm: Calm
) -> None:
    failed = []
    for number, verb in enumerate(verbs):
        before, calls = calm[verb.name]
        for faults in batches(calls, PASSING[number % 8 :] + PASSING[: number % 8]):
            begin(verb, project, ground)
            for call, kind in faults.items():
                ground.fail(call, kind, 1)
            done = invoke(verb, ground)
            if not done.succeeded or unknown(done) != unknown(before):
                failed.append((verb.name, faults, done.printed))
    assert not failed, "\n".join(map(str, failed))


def unknown(doctor: Outcome) -> set[str]:
    """The checks that could not be made."""
    checks = doctor.value.get("checks", ())
    return {each["name"] for each in checks if each["state"] == "could-not-tell"}


def test_one_that_stays_is_told(
    project: Project,
    ground: Ground,
    verbs: Sequence[Verb],
    calm: Calm,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(repeating, "_TRIES", 1)
    turn, failed = itertools.cycle(LASTING), []
    for verb in verbs:
        calls = calm[verb.name][1]
        every = ((call, kind) for call in calls for kind in LASTING)
        some = ((call, next(turn)) for call in calls[:: 1 + len(calls) // 4])
        for call, kind in every if WHOLE else some:
            begin(verb, project, ground)
            patience(monkeypatch, 0.2)
            ground.fail(call, kind, -1)
            done = invoke(verb, ground)
            ground.calm()
            patience(monkeypatch, 30.0)
            wrong = "" if done.succeeded or verb.name == "doctor" else what_is_wrong(done, kind, ground)
            if wrong or done.code not in (0, 3, 5, 8):
                failed.append((verb.name, call, kind, wrong or f"exit code {done.code}", done.printed))
    assert not failed, "\n".join(map(str, failed))


AFTER_CREATE = {"aws": "PutMetricAlarm", "gcp": "compute.zoneOperations.get"}


@pytest.mark.parametrize("kind", [*EXPIRED, "denied", "503"])
def test_a_refusal_after_the_create_call_denies_no_machine(
    project: Project, ground: Ground, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    up, down = VERBS[0], VERBS[-1]
    begin(up, project, ground)
    monkeypatch.setattr(repeating, "_TRIES", 1)
    patience(monkeypatch, 0.2)
    ground.fail(AFTER_CREATE[ground.name], kind, -1)
    done = invoke(up, ground)
    ground.calm()
    patience(monkeypatch, 30.0)
    assert ground.alive("job")
    assert done.succeeded or not what_is_wrong(done, kind, ground), done.printed
    assert invoke(down, ground).code == 0
    assert ground.alive("job") == []


def what_is_wrong(done: Outcome, kind: str, ground: Ground) -> str:
    """What the error of a verb lacks."""
    told = done.error
    if told is None:
        return "it failed without an error"
    if kind in EXPIRED and done.code != 3:
        return "expired credentials have another exit code"
    if kind in PASSING and done.code not in (5, 8):
        return "what may pass has another exit code"
    if not told["exists"] or (ground.alive("job") and not COSTS.search(told["exists"])):
        return "what exists is not told"
    return "" if COMMAND.match(str(told["next_command"])) else "no next command"
