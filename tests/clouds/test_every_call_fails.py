"""Each call of a cloud's API that up, status and down make fails once, or for good, on either cloud.

A fault that passes stops nothing. One that stays ends the command with an error that is classified and names
what exists. In every case `down` leaves nothing afterwards. Nothing boots: the guest's part is stood in for.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from orchestrator.api import lease as leasing
from orchestrator.errors import Fault, OrchError, ProviderError
from orchestrator.leases import status
from orchestrator.leases.down import down
from orchestrator.providers.retry import RetryingProvider
from orchestrator.session.project import Project
from tests.clouds.failing import AWS_CALLS, GOOGLE_CALLS, Ground, patience

HARMLESS = {
    "GetCallerIdentity",
    "cloudresourcemanager.projects.getEffectiveOrgPolicy",
}
"""Calls whose refusal stops nothing: who asks, and whether OS Login is demanded."""


def up(project: Project) -> Any:
    return leasing.up(project.root / "orch.yaml", folder=project.root)


def walk(project: Project) -> None:
    made = up(project)
    assert up(project).machine == made.machine
    (seen,) = status.status(folder=project.root, ask=True)
    assert seen.machine == made.machine
    assert down(folder=project.root).machines == (made.machine,)


def nothing_is_left(project: Project, ground: Ground) -> None:
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


def test_the_calls_are_those_that_are_listed_here(project: Project, ground: Ground) -> None:
    walk(project)
    assert set(ground.calls()) - HARMLESS == set(calls_of(ground))


@pytest.mark.parametrize("kinds", [("500", "cut"), ("page", "throttled"), ("xhtml", "late 500")])
def test_what_passes_stops_nothing(project: Project, ground: Ground, kinds: tuple[str, str]) -> None:
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
    project: Project, ground: Ground, call: str, kind: str, monkeypatch: pytest.MonkeyPatch
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
        exists = str(refused[-1].exists)
        assert "is still running, at $" in exists or "may have been created" in exists
    nothing_is_left(project, ground)


@pytest.mark.parametrize("ground", ["gcp"], indirect=True)
def test_an_operation_that_google_does_not_know_fails_nothing(project: Project, ground: Ground) -> None:
    ground.fail("compute.zoneOperations.get", "forgotten", -1)
    walk(project)
    nothing_is_left(project, ground)
