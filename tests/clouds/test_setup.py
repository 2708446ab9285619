"""`orch setup` on accounts where nothing is prepared: listed, made once, gone on with, removed."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from orchestrator.api import setup as api
from orchestrator.api.cloud_doctor import examine
from orchestrator.errors import Fault, ProviderError, UsageError
from orchestrator.model.setup import SetupStep
from tests.clouds.fresh import fresh

HERE, THERE = "203.0.113.7/32", "198.51.100.0/24"


@pytest.fixture(scope="module", params=["aws", "gcp"])
def served(request: pytest.FixtureRequest) -> Iterator[tuple[str, Any]]:
    pytest.importorskip({"aws": "boto3", "gcp": "google.cloud.compute_v1"}[request.param])
    with fresh(request.param, machines=False) as cloud:
        yield request.param, cloud


@pytest.fixture
def account(served: tuple[str, Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, dict[str, str]]]:
    name, cloud = served
    for key, value in cloud.env.items():
        monkeypatch.setenv(key, value)
    yield name, dict(cloud.env)
    api.setup(name, undo=True)


def names(steps: Sequence[SetupStep]) -> list[str]:
    return [step.name for step in steps]


def test_it_is_listed_made_once_and_removed(account: tuple[str, dict[str, str]]) -> None:
    cloud, _ = account
    asked: list[list[str]] = []

    def refuse(where: str, steps: Sequence[SetupStep]) -> bool:
        assert where
        asked.append(names(steps))
        return False

    with pytest.raises(UsageError, match="nothing was changed"):
        api.setup(cloud, source=HERE, approve=refuse)
    made = api.setup(cloud, source=HERE)
    assert names(made.changed) == asked[0] != []
    assert api.setup(cloud, source=HERE, approve=refuse).changed == ()
    gone = api.setup(cloud, undo=True)
    assert gone.changed
    assert api.setup(cloud, undo=True, approve=refuse).changed == ()
    assert len(asked) == 1


def test_killed_between_two_steps_the_next_call_goes_on(account: tuple[str, dict[str, str]]) -> None:
    cloud, environ = account
    known = api._setup_of(cloud)
    total = len(known.lacking(HERE, None, environ)[1])
    for left in range(total, 0, -1):
        _, steps = known.lacking(HERE, None, environ)
        assert len(steps) == left
        steps[0].act()
        steps[0].act()  # killed after the cloud had carried it out, and before anybody knew
    assert known.lacking(HERE, None, environ)[1] == []


def test_ssh_comes_in_from_the_callers_address_alone(account: tuple[str, dict[str, str]]) -> None:
    cloud, _ = account
    api.setup(cloud, source=HERE)
    api.setup(cloud, source=THERE)
    (ssh,) = [
        check
        for check in examine(cloud, region={"aws": "us-east-1", "gcp": "us-central1"}[cloud]).checks
        if check.topic == "network" and "ssh" in check.detail
    ]
    assert ssh.state == "ok"
    assert HERE in ssh.detail and THERE in ssh.detail and "anywhere" not in ssh.detail


@pytest.mark.parametrize("source", ["0.0.0.0/0", "::/0", "here", "203.0.113.7/99"])
def test_everybody_and_nonsense_are_no_source(source: str) -> None:
    with pytest.raises(UsageError):
        api._range(source)
    assert api._range("203.0.113.7") == HERE


class _Address(BaseHTTPRequestHandler):
    text = b"203.0.113.7\n"

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.text)

    def log_message(self, *_: Any) -> None: ...


def test_ones_own_address_is_asked_for() -> None:
    server = HTTPServer(("127.0.0.1", 0), _Address)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/"
    try:
        assert api.own_address("aws", "eu-west-1", url) == "203.0.113.7"
        _Address.text = b"<html>Sign in</html>"
        with pytest.raises(UsageError, match="did not tell it") as refused:
            api.own_address("aws", "eu-west-1", url)
        command = "orch setup aws --region eu-west-1 --from YOUR.ADDRESS/32    # YOUR.ADDRESS: "
        assert str(refused.value.next_command).startswith(command)
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.usefixtures("account")
def test_who_may_not_is_told_which_permission(served: tuple[str, Any]) -> None:
    name, cloud = served
    if name == "aws":
        cloud.set(policy={"Statement": [{"Effect": "Allow", "NotAction": ["ec2:CreateSecurityGroup"]}]})
    else:
        cloud.settings(denied=["compute.firewalls.create", "serviceusage.services.enable"])
    try:
        with pytest.raises(ProviderError) as refused:
            api.setup(name, source=HERE)
        assert refused.value.fault is Fault.AUTH
        assert "CreateSecurityGroup" in refused.value.message or "compute.firewalls" in refused.value.message
    finally:
        if name == "aws":
            cloud.set(policy=None)
        else:
            cloud.settings(denied=[])


@pytest.mark.parametrize("cloud", ["aws", "gcp"])
@pytest.mark.parametrize("undo", [False, True])
def test_without_credentials_the_way_to_log_in_is_told(
    cloud: str, undo: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith(("AWS_", "GOOGLE_", "CLOUDSDK_"))]:
        monkeypatch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "CLOUDSDK_CONFIG"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    with pytest.raises(ProviderError) as refused:
        api.setup(cloud, source=HERE, undo=undo)
    assert refused.value.fault is Fault.AUTH
    login = {"aws": "aws configure", "gcp": "gcloud auth application-default login"}[cloud]
    assert str(refused.value.next_command).startswith(login)


def test_an_address_that_is_admitted_already_changes_nothing(account: tuple[str, dict[str, str]]) -> None:
    cloud, _ = account
    api.setup(cloud, source="203.0.113.0/24")
    assert names(api.setup(cloud, source=HERE).changed) == []
    assert names(api.setup(cloud, source=THERE).changed) != []
