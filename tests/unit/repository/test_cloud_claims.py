"""docs/clouds.md: a claim about a real cloud has a source and a test; first-contact asks each with a name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from scripts import cloud_beliefs

ROOT = Path(__file__).resolve().parents[3]
_ROW = re.compile(r"^\| (?:`([a-z-]+)`)? ?\| (.+?) \| (.+?) \| (tests/[\w/]+\.py)::(\w+) \|$")


def claims() -> list[tuple[str, str, str, str, str]]:
    page = (ROOT / "docs/clouds.md").read_text()
    table = page.partition("## What is believed of the real clouds")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    found = [_ROW.match(row) for row in rows]
    assert all(found), [row for row, match in zip(rows, found, strict=True) if not match]
    return [(m[1] or "", m[2], m[3], m[4], m[5]) for m in found if m]


def checks() -> Mapping[str, Any]:
    parts = (cloud_beliefs.BEFORE, cloud_beliefs.WITH_MACHINE, cloud_beliefs.AFTER)
    return {name: check for part in parts for cloud in part.values() for name, check in cloud.items()}


def test_each_claim_has_a_test_that_exists() -> None:
    assert len(claims()) > 30
    for _, claim, _, path, name in claims():
        assert f"def {name}(" in (ROOT / path).read_text(), f"{claim}: {path} has no {name}"


def test_first_contact_checks_each_claim_that_has_a_name() -> None:
    named = [name for name, *_ in claims() if name]
    assert sorted(named) == sorted(checks())


SEEN = {
    "aws-disk": {
        "disk": {"VolumeType": "gp3", "Iops": 3000, "Throughput": 125},
        "BlockDeviceMappings": [{"Ebs": {"DeleteOnTermination": True}}],
    },
    "aws-metadata": {"MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 1}},
    "aws-power-off": {"ending": "terminate"},
    "aws-no-identity": {},
    "aws-host-key": {"Tags": [{"Key": "orch-proof", "Value": "renewed"}]},
    "gcp-deadline": {
        "scheduling": {"instanceTerminationAction": "DELETE", "maxRunDuration": {"seconds": "1740"}}
    },
    "gcp-labels": {"labels": {"orch-lease": "a", "purpose": "first-contact"}},
    "gcp-disk": {"disks": [{"autoDelete": True}]},
    "gcp-no-identity": {},
}
OTHERWISE = {
    "aws-disk": {**SEEN["aws-disk"], "disk": {"VolumeType": "gp2", "Iops": 100}},
    "aws-metadata": {"MetadataOptions": {"HttpTokens": "optional", "HttpPutResponseHopLimit": 2}},
    "aws-power-off": {"ending": "stop"},
    "aws-no-identity": {"IamInstanceProfile": {"Arn": "arn:aws:iam::1:instance-profile/default"}},
    "aws-host-key": {"Tags": []},
    "gcp-deadline": {"scheduling": {"instanceTerminationAction": "STOP"}},
    "gcp-labels": {"labels": {}},
    "gcp-disk": {"disks": [{"autoDelete": False}]},
    "gcp-no-identity": {"serviceAccounts": [{"email": "default"}]},
}


@pytest.mark.parametrize("name", sorted(SEEN))
def test_a_cloud_that_answers_otherwise_is_called_wrong(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    one = {name: checks()[name]}
    world = cloud_beliefs.World("aws", "us-east-1", "t3.small", Path(), None)
    for seen, wrong in ((SEEN[name], []), (OTHERWISE[name], [name])):
        world.seen = seen
        assert cloud_beliefs.judge(world, one) == wrong
        assert capsys.readouterr().out.startswith("WRONG" if wrong else "ok")


def test_a_question_that_cannot_be_asked_is_no_wrong_belief(capsys: pytest.CaptureFixture[str]) -> None:
    world = cloud_beliefs.World("aws", "us-east-1", "t3.small", Path(), None)
    assert cloud_beliefs.judge(world, {"aws-quota": checks()["aws-quota"]}) == []
    assert capsys.readouterr().out.startswith("?      aws-quota: AttributeError")
