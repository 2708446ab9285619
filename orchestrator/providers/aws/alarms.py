"""CloudWatch alarms that end a machine if its guest cannot: because it is dead, or past its deadline without
a timer.

They carry EC2's own terminate action, under a role that AWS makes itself
(docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/UsingAlarmActions.html). An alarm outlives its machine
and costs a little: `remove` is for when the machine is proven gone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from orchestrator.errors import ProviderError
from orchestrator.providers.aws.clients import Clients, asking

DEAD_MINUTES = 20
"""How long EC2 must find a guest unreachable before that ends the machine; a boot takes less."""

LATE_S = 600
"""How long after its deadline a machine that is still there is ended, at least."""

_MINUTE, _FINE, _HOUR, _DAY, _WEEK = 60, 300, 3600, 86400, 604800
_KINDS = ("dead", "late")
_FAILURES = (ProviderError, LookupError, TypeError, ValueError, AttributeError)
"""A refusal, and an answer that cannot be read: neither may hide that a machine was made."""


def name_of(identity: str, kind: str) -> str:
    return f"orch-{identity}-{kind}"


def alarms_of(identity: str, region: str, lasts: float) -> tuple[Mapping[str, Any], ...]:
    """Return the parameters of PutMetricAlarm for each alarm. `lasts`: seconds from the machine's start to
    its deadline.

    An alarm looks back a day at most, or a week with periods of an hour (PutMetricAlarm's reference, Period):
    a machine for longer has none for its deadline.
    """
    common = {
        "Namespace": "AWS/EC2",
        "MetricName": "StatusCheckFailed",
        "Dimensions": [{"Name": "InstanceId", "Value": identity}],
        "ComparisonOperator": "GreaterThanOrEqualToThreshold",
        "Threshold": 1.0,
        "TreatMissingData": "notBreaching",
        "AlarmActions": [f"arn:{partition_of(region)}:automate:{region}:ec2:terminate"],
    }
    dead = {
        **common,
        "AlarmName": name_of(identity, "dead"),
        "AlarmDescription": "Ends this machine of orch: its guest is dead.",
        "Statistic": "Minimum",
        "Period": _MINUTE,
        "EvaluationPeriods": DEAD_MINUTES,
    }
    # One value a minute comes while the machine runs: so many periods with a value are a life so long.
    period = _FINE if lasts + LATE_S + _FINE <= _DAY else _HOUR
    periods = math.ceil((lasts + LATE_S) / period)
    late = {
        **common,
        "AlarmName": name_of(identity, "late"),
        "AlarmDescription": "Ends this machine of orch: it is there after its deadline.",
        "Statistic": "SampleCount",
        "Period": period,
        "EvaluationPeriods": periods,
    }
    return (dead, late) if periods * period <= _WEEK else (dead,)


def partition_of(region: str) -> str:
    """Return the ARN partition of a region, such as aws or aws-cn."""
    return {"cn": "aws-cn", "us-gov": "aws-us-gov"}.get(region.rpartition("-")[0].rpartition("-")[0], "aws")


def arm(clients: Clients, region: str, identity: str, lasts: float) -> dict[str, Any]:
    """Create the alarms; returns what the machine's detail says about them. A refusal is reported and is
    no error.
    """
    kinds: list[str] = []
    try:
        with asking(clients, region):
            for alarm in alarms_of(identity, region, lasts):
                clients.client("cloudwatch", region).put_metric_alarm(**alarm)
                kinds.append(str(alarm["AlarmName"]).rpartition("-")[2])
    except _FAILURES as error:
        return {"alarms": kinds, "no_alarm": str(error)}
    return {"alarms": kinds}


def remove(clients: Clients, region: str, identity: str) -> None:
    """Delete the alarms that may exist, one call each: an unknown name in a call would keep the others."""
    for kind in _KINDS:
        with suppress(*_FAILURES), asking(clients, region):
            clients.client("cloudwatch", region).delete_alarms(AlarmNames=[name_of(identity, kind)])
