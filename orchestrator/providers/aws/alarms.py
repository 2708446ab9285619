"""CloudWatch alarms that terminate a machine that cannot end itself: it is dead, or its deadline timer is
missing.

They use EC2's own terminate action, under a role that AWS creates
(docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/UsingAlarmActions.html). An alarm outlives its machine
and costs a little: call `remove` once the machine is proven gone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from orchestrator.errors import ProviderError
from orchestrator.providers.aws.clients import Clients, asking

DEAD_MINUTES = 20
"""Minutes for which EC2 must report the machine as unreachable before it is terminated; a boot takes less."""

LATE_S = 600
"""Minimum seconds after the deadline before a machine that still exists is terminated."""

_MINUTE, _FINE, _HOUR, _DAY, _WEEK = 60, 300, 3600, 86400, 604800
_KINDS = ("dead", "late")
_FAILURES = (ProviderError, LookupError, TypeError, ValueError, AttributeError)
"""Errors of a call for alarms. They are reported, not raised, because the machine exists without the
alarms.
"""


def name_of(identity: str, kind: str) -> str:
    return f"orch-{identity}-{kind}"


def alarms_of(identity: str, region: str, lasts: float) -> tuple[Mapping[str, Any], ...]:
    """Return the parameters of PutMetricAlarm for each alarm. `lasts`: seconds from the machine's start to
    its deadline.

    An alarm evaluates at most one day, or a week with periods of an hour (PutMetricAlarm's reference,
    Period). A machine that may run longer has no alarm for its deadline.
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
    # A running machine sends one value a minute, so the number of periods with a value is its age.
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
    """Create the alarms; returns a text about them for the machine's `detail`. If AWS refuses, the text says
    so; nothing is raised.
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
    """Delete the alarms that may exist, with one call each: a call with one unknown name deletes none."""
    for kind in _KINDS:
        with suppress(*_FAILURES), asking(clients, region):
            clients.client("cloudwatch", region).delete_alarms(AlarmNames=[name_of(identity, kind)])
