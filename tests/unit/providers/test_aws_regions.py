"""In which regions machines are looked for, and that none is made elsewhere; what reaches nobody is said."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import Machine, MachineState, Offer
from orchestrator.providers import open_provider
from orchestrator.providers.aws.clients import Clients
from orchestrator.providers.aws.provider import AwsProvider
from orchestrator.providers.aws.settings import Settings, read
from orchestrator.providers.aws.zones import with_zones

NOBODY = "http://127.0.0.1:9"  # the discard port: nobody listens


@pytest.fixture(autouse=True)
def no_cloud(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_SESSION_TOKEN", "ORCH_AWS_REGIONS"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/dev/null")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ENDPOINT_URL", NOBODY)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "none")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "none")


def clients(*regions: str, catalog: tuple[str, ...] = ("us-east-1",)) -> Clients:
    return Clients(Settings(regions=regions), lambda: catalog)


def test_named_regions_are_all_there_are() -> None:
    assert clients("eu-west-1", "us-west-2").regions == ("eu-west-1", "us-west-2")


def test_one_region_of_catalog_and_environment_is_asked_of_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    assert clients().regions == ("us-east-1",)


def test_several_are_asked_for_and_not_guessed() -> None:
    with pytest.raises(ProviderError) as refused:
        _ = clients(catalog=("us-east-1", "eu-west-1")).regions
    assert refused.value.fault is Fault.TRANSIENT


def test_nothing_is_made_where_nobody_would_look() -> None:
    with pytest.raises(ProviderError, match="eu-west-1") as refused:
        clients("us-east-1").require_region("eu-west-1")
    assert refused.value.fault is Fault.INVALID
    assert refused.value.next_command == "export ORCH_AWS_REGIONS=us-east-1,eu-west-1"


def test_the_endpoint_of_one_service_can_be_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_SSM", "http://127.0.0.1:10")
    made = clients("us-east-1")
    assert made.client("ec2", "us-east-1").meta.endpoint_url == NOBODY
    assert made.client("ssm", "us-east-1").meta.endpoint_url == "http://127.0.0.1:10"


def test_clients_try_once() -> None:
    retries = clients("us-east-1").ec2("us-east-1").meta.config.retries
    assert retries["total_max_attempts"] == 1


def test_offers_without_credentials_are_those_of_the_catalog(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    offer = Offer("aws", "t3.micro", "us-east-1", "", 2, 1 << 30, "x86_64", 0.0104)
    assert with_zones(clients("us-east-1"), [offer]) == [offer]


def test_a_zone_that_was_asked_for_is_asked_of_nobody() -> None:
    offer = Offer("aws", "t3.micro", "us-east-1", "us-east-1c", 2, 1 << 30, "x86_64", 0.0104)
    assert with_zones(clients("us-east-1"), [offer]) == [offer]


def test_an_answer_that_never_comes_is_no_empty_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be asked is not gone."""
    monkeypatch.setenv("ORCH_AWS_REGIONS", "us-east-1")
    with pytest.raises(ProviderError) as refused:
        AwsProvider(read({"ORCH_AWS_REGIONS": "us-east-1"})).list({})
    assert refused.value.fault is Fault.TRANSIENT


@pytest.mark.parametrize("identity", ["", "vm-1", "i-", "i-XYZ", "i-12345678;x", "nul\0"])
def test_what_is_no_instance_is_not_asked_for(identity: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCH_AWS_REGIONS", "us-east-1")
    provider = open_provider("aws")
    born = datetime(2026, 1, 1, tzinfo=UTC)
    machine = Machine("aws", identity, "x", MachineState.RUNNING, {}, "t3.micro", "us-east-1a", 0.01, born)
    for ask in (provider.delete, provider.endpoint):
        with pytest.raises(ProviderError) as refused:
            ask(machine)
        assert refused.value.fault is Fault.INVALID
