"""A project of Google APIs that spread, a network that comes, no billing, a person's login."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator import catalog
from orchestrator.api import setup as api
from orchestrator.errors import Fault, ProviderError
from orchestrator.providers.gcp import setup as of_google
from orchestrator.providers.gcp.os_login import OsLogin
from tests.clouds import gcp
from tests.clouds.fresh import NEW_NETWORK
from tests.clouds.test_os_login import spec

HERE = "203.0.113.7/32"
APIS = ["compute.googleapis.com", "cloudresourcemanager.googleapis.com"]


@pytest.fixture(scope="module")
def served() -> Iterator[Any]:
    pytest.importorskip("google.cloud.compute_v1")
    with gcp.running(machines=False) as cloud:
        yield cloud


@pytest.fixture
def project(served: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """As a new project is, but for what a test says."""
    for key, value in served.env.items():
        monkeypatch.setenv(key, value)
    served.settings(
        firewalls=[NEW_NETWORK],
        disabled=APIS,
        networks=["default"],
        enabling_s=0.0,
        network_s=0.0,
        billed=True,
        policies={},
    )
    return served


@pytest.fixture
def person(project: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Who ran `gcloud auth application-default login` before a project was chosen."""
    login = {
        "type": "authorized_user",
        "client_id": "764086051850-6qr4p6gpi6hn506pt8ejuq83di341hur.apps.googleusercontent.com",
        "client_secret": "none",
        "refresh_token": "none",
        "token": "a-persons-token",
        "account": "ann@example.com",
        "expiry": "2099-01-01T00:00:00Z",
    }
    (tmp_path / "adc.json").write_text(json.dumps(login))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "adc.json"))
    monkeypatch.setenv("CLOUDSDK_AUTH_DISABLE_CREDENTIALS", "false")
    return project


def test_what_was_enabled_just_now_is_waited_for(project: Any) -> None:
    project.settings(enabling_s=1.0, network_s=1.0)
    made = api.setup("gcp", source=HERE)
    rules = [step.name for step in made.changed][-2:]
    assert rules == ["firewall rule orch-ssh", "firewall rule orch-ssh-deny"]
    assert api.setup("gcp", source=HERE).changed == ()


@pytest.mark.parametrize("disabled", [APIS, []])
def test_a_project_without_a_default_network_is_told_how_to_get_one(
    project: Any, monkeypatch: pytest.MonkeyPatch, disabled: list[str]
) -> None:
    monkeypatch.setattr(of_google, "NETWORK_WITHIN_S", 0.5)
    project.settings(networks=["orch"], disabled=disabled)
    with pytest.raises(ProviderError) as refused:
        api.setup("gcp", source=HERE)
    assert refused.value.fault is Fault.INVALID
    assert str(refused.value.next_command).startswith("gcloud compute networks create default")


def test_a_project_that_nobody_pays_for_is_told_how_to_link_an_account(project: Any) -> None:
    project.settings(billed=False)
    with pytest.raises(ProviderError) as refused:
        api.setup("gcp", source=HERE)
    assert refused.value.fault is Fault.AUTH
    assert str(refused.value.next_command).startswith("gcloud billing projects link orch-test")


@pytest.mark.usefixtures("person")
def test_a_persons_requests_count_for_the_project_in_use() -> None:
    api.setup("gcp", source=HERE)
    assert api.setup("gcp", source=HERE).changed == ()


def test_a_persons_key_goes_into_the_own_login_profile(person: Any) -> None:
    person.settings(disabled=[], policies={"compute.requireOsLogin": {"booleanPolicy": {"enforced": True}}})
    login = OsLogin(dict(api.os.environ)).given(spec(), None)
    assert login is not None


def test_a_person_may_ask_for_prices(person: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    person.settings(disabled=[])
    monkeypatch.setenv("ORCH_CACHE_HOME", str(tmp_path))
    assert catalog.refresh("gcp", region="us-central1")
