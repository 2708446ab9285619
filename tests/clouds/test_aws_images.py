"""Which image is booted: found by parameter or by name, for processor and GPU, never one of Windows."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("boto3")
pytest.importorskip("moto")

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import MachineSpec, Offer
from orchestrator.providers.aws import images
from orchestrator.providers.aws.clients import Clients
from orchestrator.providers.aws.settings import read
from tests.clouds.aws import Cloud

REGION = "us-east-1"
PLAIN = Offer("aws", "m7i.large", REGION, "us-east-1a", 2, 8 << 30, "x86_64", 0.1)
T4 = replace(PLAIN, instance_type="g4dn.xlarge", accelerator="T4", accelerator_count=1)
T4G = replace(T4, instance_type="g5g.xlarge", accelerator="T4G", arch="arm64")
V100 = replace(T4, instance_type="p3.2xlarge", accelerator="V100")
NO_PARAMETERS = {
    "Statement": [
        {"Effect": "Allow", "Action": "*"},
        {"Effect": "Deny", "Action": "ssm:GetParameter"},
    ]
}


@pytest.fixture
def clients(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Clients:
    for name, value in cloud.env.items():
        monkeypatch.setenv(name, value)
    return Clients(read({}), lambda: (REGION,))


def found(clients: Clients, offer: Offer, wanted: str | None = None) -> str:
    spec = MachineSpec("orch-a", 0, offer, 100 << 30, datetime.now(UTC) + timedelta(hours=1), {}, "")
    image = images.find(clients, REGION, spec, wanted)
    assert image.architecture == offer.arch
    return image.name


@pytest.mark.parametrize("policy", [None, NO_PARAMETERS], ids=["parameters", "names"])
@pytest.mark.parametrize(
    ("offer", "name"),
    [
        (T4, "Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 24.04) 20261113"),
        (T4G, "Deep Learning ARM64 Base OSS Nvidia Driver GPU AMI (Ubuntu 24.04) 20261113"),
        (V100, "Deep Learning Base Proprietary Nvidia Driver GPU AMI (Ubuntu 20.04) 20250523"),
        (PLAIN, "ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-amd64-server-20261110"),
    ],
    ids=["T4", "T4G", "V100", "plain"],
)
def test_the_image_fits_with_and_without_the_public_parameters(
    cloud: Cloud, clients: Clients, policy: object, offer: Offer, name: str
) -> None:
    cloud.set(policy=policy)
    assert found(clients, offer) == name


def test_a_pattern_names_the_newest_of_the_machine_s_processor_and_never_windows(clients: Clients) -> None:
    assert "ARM64" in found(clients, T4G, "Deep Learning*Base OSS Nvidia*")
    assert "Ubuntu 20.04" in found(clients, V100, "Deep Learning Base Proprietary*")
    with pytest.raises(ProviderError, match="runs Linux") as error:
        found(clients, V100, "*Windows Server*")
    assert error.value.fault is Fault.INVALID


def test_a_parameter_that_was_asked_for_by_name_is_not_replaced_by_another(
    cloud: Cloud, clients: Clients
) -> None:
    cloud.set(policy=NO_PARAMETERS)
    with pytest.raises(ProviderError) as error:
        found(clients, T4, "ssm:/aws/service/own")
    assert error.value.fault is Fault.AUTH
