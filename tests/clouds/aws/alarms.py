"""CloudWatch's alarms on StatusCheckFailed, carried out: what EC2's terminate action does to an instance.

Stricter than AWS: an alarm of another metric, of an instance that does not exist, with an action of another
region, or that looks back further than it may, is refused.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from moto.cloudwatch.models import cloudwatch_backends

from tests.clouds.aws.life import LIVES, Life
from tests.clouds.aws.requests import Request, Response, error
from tests.clouds.aws.settings import ACCOUNT, SETTINGS

_DAY, _WEEK, _HOUR = 86400, 604800, 3600


def answer(request: Request) -> Response | None:
    """The refusal of an alarm that AWS would not make, or that would do nothing; None for moto's answer."""
    if request.service != "monitoring" or request.action != "PutMetricAlarm":
        return None
    wrong = _wrong(json.loads(request.body), request.region)
    return error(request, 400, "ValidationError", wrong) if wrong else None


def _wrong(asked: Mapping[str, Any], region: str) -> str:
    period, periods = int(asked["Period"]), int(asked["EvaluationPeriods"])
    limit = _DAY if period < _HOUR else _WEEK
    named = {each["Name"]: each["Value"] for each in asked.get("Dimensions", ())}
    life = LIVES.get(named.get("InstanceId", ""))
    if period % 60:
        return "Period must be a multiple of 60"
    if period * periods > limit:
        return f"Metrics cannot be checked across more than {limit} seconds"
    if asked["AlarmActions"] != [f"arn:aws:automate:{region}:ec2:terminate"]:
        return "Invalid arn syntax, or an action of another region"
    if (asked["Namespace"], asked["MetricName"]) != ("AWS/EC2", "StatusCheckFailed") or set(named) != {
        "InstanceId"
    }:
        return "this test cloud has no such metric"
    if life is None or life.region != region:
        return f"The instance {named['InstanceId']} does not exist in {region}"
    if asked["Statistic"] not in ("Minimum", "SampleCount") or asked["TreatMissingData"] != "notBreaching":
        return "this test cloud does not know what that alarm would do"
    return ""


def watch() -> None:
    """Carry alarms out, for ever."""
    while True:
        time.sleep(min(0.2, SETTINGS.cloudwatch_minute_s))
        found = [alarm for made in list(cloudwatch_backends[ACCOUNT].values()) for alarm in _alarms(made)]
        for alarm in found:
            life = LIVES.get(alarm.dimensions[0].value)
            if life is not None and _is_over(alarm, life):
                LIVES.terminate(life, "Client.UserInitiatedShutdown", f"Alarm {alarm.name}")


def _alarms(backend: Any) -> list[Any]:
    return list(backend.alarms.values())


def _is_over(alarm: Any, life: Life) -> bool:
    """Whether so many periods in a row have a value that breaches; a period without one does not."""
    since = life.dead_since if alarm.statistic == "Minimum" else life.running_at
    if since is None or life.ending:
        return False
    minutes = (time.time() - since) / SETTINGS.cloudwatch_minute_s
    return bool(minutes * 60 >= alarm.period * alarm.evaluation_periods)
