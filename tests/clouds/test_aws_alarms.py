"""AWS ends a machine whose guest cannot: alarms that are made with it and removed once it is proven gone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

pytest.importorskip("boto3")
pytest.importorskip("moto")

from orchestrator.model import LABEL_LEASE, LABEL_OWNER, Bound, Machine, MachineSpec, Need, Silent
from orchestrator.providers.aws import alarms
from orchestrator.providers.aws.provider import open_aws
from orchestrator.providers.retry import RetryingProvider
from orchestrator.session.machines import end_and_prove
from tests.clouds.aws import Cloud
from tests.clouds.ground_aws import grounded
from tests.unit.memory_cloud import KEY

HOUR, DAY = 3600, 86400
EVERYTHING = {"Effect": "Allow", "Action": "*", "Resource": "*"}


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    with grounded(machines=False, cloudwatch_minute_s=0.01) as made:
        yield made


@pytest.fixture
def provider(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Iterator[RetryingProvider]:
    for name, value in {**cloud.env, "ORCH_AWS_REGIONS": "us-east-1"}.items():
        monkeypatch.setenv(name, value)
    cloud.set(policy=None, cloudwatch_minute_s=0.01)
    yield open_aws()
    cloud.set(policy=None)


def made(provider: RetryingProvider, name: str, lasts: float) -> Machine:
    offers = provider.offers(Need("aws", cpus=Bound(2), memory=Bound(1 << 30)))
    offer = next(one for one in offers if one.zone and not one.spot and one.arch == "x86_64")
    labels = {LABEL_LEASE: name, LABEL_OWNER: "me"}
    deadline = datetime.now(UTC) + timedelta(seconds=lasts)
    spec = MachineSpec(f"orch-{name}", 0, offer, 30 << 30, deadline, labels, KEY, lasts=lasts)
    return provider.create(spec)


def names(cloud: Cloud) -> list[str]:
    return sorted(one["AlarmName"] for one in cloud.client("cloudwatch").describe_alarms()["MetricAlarms"])


def comes(holds: Callable[[], object]) -> None:
    limit = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < limit
        time.sleep(0.1)


def test_a_machine_whose_guest_is_dead_is_ended(cloud: Cloud, provider: RetryingProvider) -> None:
    machine = made(provider, "dead", 6 * DAY)
    assert machine.detail["alarms"] == ["dead", "late"]
    assert names(cloud) == [f"orch-{machine.id}-dead", f"orch-{machine.id}-late"]
    comes(lambda: (found := provider.find(machine)) and found.state == "running")
    time.sleep(0.5)
    assert provider.find(machine), "nobody ends one that answers"
    cloud.freeze(machine.id)
    comes(lambda: provider.find(machine) is None)
    end_and_prove(provider, (machine,), None, Silent())
    assert names(cloud) == []


def test_a_machine_that_is_there_after_its_deadline_is_ended(
    cloud: Cloud, provider: RetryingProvider
) -> None:
    """Its guest lives; its timer is gone."""
    machine = made(provider, "late", HOUR)
    comes(lambda: provider.find(machine) is None)
    provider.forget(machine)
    assert names(cloud) == []


def test_a_refused_alarm_is_told_and_fails_nothing(cloud: Cloud, provider: RetryingProvider) -> None:
    no_alarms = {"Effect": "Deny", "Action": "cloudwatch:*", "Resource": "*"}
    cloud.set(policy={"Version": "2012-10-17", "Statement": [EVERYTHING, no_alarms]})
    machine = made(provider, "refused", HOUR)
    assert machine.detail["alarms"] == []
    assert "cloudwatch:PutMetricAlarm" in machine.detail["no_alarm"]
    end_and_prove(provider, (machine,), None, Silent())


def test_a_machine_whose_create_was_cut_short_is_guarded_when_it_is_found(
    cloud: Cloud, provider: RetryingProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        """The process ended between RunInstances and PutMetricAlarm."""

    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as broken:
        broken.setattr(alarms, "arm", killed)
        with pytest.raises(Killed):
            made(provider, "cut", HOUR)
    assert names(cloud) == []
    comes(lambda: provider.list({LABEL_LEASE: "cut"}))  # lists lag behind
    (found,) = provider.list({LABEL_LEASE: "cut"})
    guarded = provider.guard(found, 6 * DAY)
    assert guarded.detail["alarms"] == ["dead", "late"]
    assert names(cloud) == [f"orch-{found.id}-dead", f"orch-{found.id}-late"]
    end_and_prove(provider, (found,), None, Silent())
    assert names(cloud) == []


@pytest.mark.parametrize(
    ("lasts", "kinds"),
    [(60.0, 2), (HOUR, 2), (DAY - 900, 2), (DAY, 2), (7 * DAY - HOUR, 2), (7 * DAY, 1), (120 * DAY, 1)],
)
def test_an_alarm_looks_back_no_further_than_it_may_and_comes_after_the_deadline(
    lasts: float, kinds: int
) -> None:
    found = alarms.alarms_of("i-0", "us-east-1", lasts)
    assert len(found) == kinds
    for alarm in found[1:]:
        seconds = alarm["Period"] * alarm["EvaluationPeriods"]
        assert lasts + alarms.LATE_S <= seconds <= (DAY if alarm["Period"] < HOUR else 7 * DAY)


@pytest.mark.parametrize(
    ("region", "partition"),
    [
        ("us-east-1", "aws"),
        ("ap-southeast-2", "aws"),
        ("cn-north-1", "aws-cn"),
        ("us-gov-west-1", "aws-us-gov"),
    ],
)
def test_the_action_is_of_the_region_s_partition(region: str, partition: str) -> None:
    (first, *_) = alarms.alarms_of("i-0", region, HOUR)
    assert first["AlarmActions"] == [f"arn:{partition}:automate:{region}:ec2:terminate"]


def test_the_emulator_refuses_what_would_end_nothing(cloud: Cloud) -> None:
    refused: list[Any] = []
    sound = dict(alarms.alarms_of("i-0123456789abcdef0", "us-east-1", HOUR)[0])
    for change in ({}, {"Period": 300, "EvaluationPeriods": 289}, {"MetricName": "StatusCheck"}):
        with pytest.raises(Exception, match="ValidationError") as error:
            cloud.client("cloudwatch").put_metric_alarm(**{**sound, **change})
        refused.append(error)
    assert len(refused) == 3
