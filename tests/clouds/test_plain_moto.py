"""orch's provider on moto as its makers ship it: an emulator of other hands, without our corrections."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta

import boto3
import pytest
from moto.server import ThreadedMotoServer

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import LABEL_LEASE, MachineSpec, MachineState, Offer
from orchestrator.providers import open_provider
from tests.conftest import ROOT

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGtQzVn0VdkT0Wm2yQ0nXUkPSpPkXyBzQkq5dlqCqk0a nobody"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    made = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    made.start()
    host, port = made.get_host_and_port()
    yield f"http://{host}:{port}"
    made.stop()


@pytest.fixture
def environ(server: str, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, str]:
    """With the one thing that terraform makes: a security group that lets ssh in."""
    values = {
        "AWS_ENDPOINT_URL": server,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "ORCH_AWS_REGIONS": "us-east-1",
    }
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    ec2 = boto3.client("ec2")
    if not ec2.describe_security_groups(Filters=[{"Name": "group-name", "Values": ["orch-ssh"]}])[
        "SecurityGroups"
    ]:
        vpc = ec2.describe_vpcs()["Vpcs"][0]["VpcId"]
        ec2.create_security_group(GroupName="orch-ssh", Description="ssh", VpcId=vpc)
    return values


def spec(name: str) -> MachineSpec:
    offer = Offer(
        cloud="aws",
        instance_type="t3.micro",
        region="us-east-1",
        zone="us-east-1a",
        cpus=2,
        memory=1 << 30,
        arch="x86_64",
        price=0.0104,
    )
    return MachineSpec(
        id=name,
        attempt=0,
        offer=offer,
        disk=30 << 30,
        deadline=datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1),
        labels={LABEL_LEASE: name},
        ssh_public_key=KEY,
        user_data="",
    )


@pytest.mark.usefixtures("environ")
def test_a_machine_is_made_once_found_again_and_ended() -> None:
    provider = open_provider("aws")
    wanted = spec("moto-one")
    made = provider.create(wanted)
    assert provider.create(wanted).id == made.id
    (listed,) = provider.list({LABEL_LEASE: "moto-one"})
    assert (listed.id, listed.price, listed.deadline) == (made.id, 0.0104, wanted.deadline)
    assert listed.state in (MachineState.PENDING, MachineState.RUNNING)
    assert provider.list({LABEL_LEASE: "another"}) == []
    provider.delete(made)
    provider.delete(made)
    assert provider.list({LABEL_LEASE: "moto-one"}) == []


@pytest.mark.usefixtures("environ")
def test_what_moto_refuses_is_told_apart() -> None:
    wanted = spec("moto-two")
    with pytest.raises(ProviderError) as refused:
        open_provider("aws").create(
            MachineSpec(**{**vars(wanted), "image": "ami-00000000000000000"})  # there is none
        )
    assert refused.value.fault is Fault.INVALID


def test_a_plan_and_the_doctor_speak_to_it(environ: Mapping[str, str]) -> None:
    """What moto does not know (dry runs, quotas) the doctor calls unknown; it does not break."""
    said = subprocess.run(
        [sys.executable, "-m", "orchestrator", "doctor", "aws", "--json"],
        env={**os.environ, **environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert said.returncode in (0, 3, 4, 5), said.stderr
    assert '"schema"' in said.stdout
    assert "bug in orch" not in said.stdout + said.stderr
