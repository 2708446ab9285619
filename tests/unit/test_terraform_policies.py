"""What terraform/ grants is the table of permissions: nothing missing, nothing more, as narrow as it says."""

from __future__ import annotations

import json
import re
import runpy
from typing import Any

import pytest

from orchestrator.providers import permissions
from tests.conftest import ROOT
from tests.unit.terraform_files import CLOUDS, TERRAFORM, blocks, literal, sources

SCRIPT = runpy.run_path(str(ROOT / "scripts/terraform_policies.py"))


def document(name: str) -> Any:
    return json.loads((TERRAFORM / name).read_text())


def granted_by_aws(name: str) -> set[tuple[str, str, tuple[tuple[str, str, str], ...]]]:
    """(action, resource, conditions) of every statement."""
    found = set()
    for statement in document(name)["Statement"]:
        assert statement["Effect"] == "Allow"
        conditions = tuple(
            sorted(
                (op, key, value)
                for op, said in statement.get("Condition", {}).items()
                for key, value in said.items()
            )
        )
        found |= {(a, r, conditions) for a in statement["Action"] for r in statement["Resource"]}
    return found


def table(cloud: str) -> set[tuple[str, str, tuple[tuple[str, str, str], ...]]]:
    return {
        (one.name, resource, tuple(sorted(grant.conditions)))
        for one in permissions.of(cloud)
        for grant in one.grants
        for resource in grant.resources
    }


def test_aws_grants_the_table_and_no_more() -> None:
    assert granted_by_aws("aws/policy.json") == table("aws")


def test_google_grants_the_table_and_no_more() -> None:
    granted = {
        (name, role["condition"])
        for role in document("gcp/roles.json").values()
        for name in role["permissions"]
    }
    wanted = set()
    for name, resource, _ in table("gcp"):
        ours = re.search(r"/(instances|disks)/orch-\*$", resource)
        kind = ours and ours.group(1)
        wanted.add((name, f"resource.name.extract('/{kind}/{{name}}').startsWith('orch-')" if ours else ""))
    assert granted == wanted


def test_google_enables_the_services_of_the_table() -> None:
    assert set(document("gcp/apis.json")) == {api.name for api in permissions.APIS}


@pytest.mark.parametrize("path", sorted(SCRIPT["files"]()))
def test_the_files_are_what_the_script_writes(path: str) -> None:
    assert (ROOT / path).read_text() == SCRIPT["files"]()[path]


def test_the_reapers_may_do_a_part_of_it() -> None:
    assert granted_by_aws("aws/reaper-policy.json") < granted_by_aws("aws/policy.json")
    whole, part = document("gcp/roles.json"), document("gcp/reaper-roles.json")
    for name, role in part.items():
        assert role["condition"] == whole[name]["condition"]
        assert set(role["permissions"]) < set(whole[name]["permissions"])


def test_no_action_is_a_wildcard() -> None:
    named = {action for action, _, _ in granted_by_aws("aws/policy.json")}
    named |= {name for role in document("gcp/roles.json").values() for name in role["permissions"]}
    assert [name for name in named if "*" in name] == []


def test_what_makes_changes_is_narrowed() -> None:
    """On AWS by tag, on Google by name: nobody else's machine can be ended."""
    for action, resource, conditions in granted_by_aws("aws/policy.json"):
        if action in ("ec2:TerminateInstances", "ec2:CreateTags") or (
            action == "ec2:RunInstances" and "instance/" in resource
        ):
            assert conditions, f"{action} on {resource}"
    free = document("gcp/roles.json")["project"]["permissions"]
    assert [name for name in free if re.search(r"\.(delete|create|set\w+|update)$", name)] == []


def test_a_policy_of_aws_fits_into_its_6144_characters() -> None:
    assert len(json.dumps(document("aws/policy.json"), separators=(",", ":"))) < 6144


def attached(cloud: str, kind: str) -> dict[str, Any]:
    return {
        one.address: literal(one.body)
        for one in blocks(sources(cloud))
        if one.kind == "resource" and one.type == kind
    }


def test_the_identities_have_these_policies_and_no_others() -> None:
    policies = {name: body["policy"] for name, body in attached("aws", "aws_iam_policy").items()}
    assert policies == {
        "aws_iam_policy.orch": '${file("${path.module}/policy.json")}',
        "aws_iam_policy.bucket": "${data.aws_iam_policy_document.bucket_use.json}",
    }
    for kind in ("aws_iam_group_policy_attachment", "aws_iam_role_policy_attachment"):
        arns = {body["policy_arn"] for body in attached("aws", kind).values()}
        assert arns == {"${aws_iam_policy.orch.arn}", "${aws_iam_policy.bucket.arn}"}
    inline = {body["policy"] for body in attached("aws", "aws_iam_role_policy").values()}
    assert inline == {
        '${file("${path.module}/reaper-policy.json")}',
        "${data.aws_iam_policy_document.reaper_build[0].json}",
        "${data.aws_iam_policy_document.clock[0].json}",
    }


def test_the_members_of_the_project_have_these_roles_and_no_others() -> None:
    roles = {name: body["role"] for name, body in attached("gcp", "google_project_iam_member").items()}
    assert roles == {
        "google_project_iam_member.orch": "${google_project_iam_custom_role.orch[each.value.role].id}",
        "google_project_iam_member.reaper": "${google_project_iam_custom_role.reaper[each.key].id}",
    }
    text = "".join(sources("gcp").values())
    assert 'roles   = jsondecode(file("${path.module}/roles.json"))' in text
    assert 'jsondecode(file("${path.module}/reaper-roles.json"))' in text
    assert text.count("permissions = each.value.permissions") == 2


@pytest.mark.parametrize("cloud", CLOUDS)
def test_every_file_that_is_read_is_there(cloud: str) -> None:
    named = re.findall(r"\$\{path\.module\}/([\w.-]+)", "".join(sources(cloud).values()))
    assert named
    assert [name for name in named if not (TERRAFORM / cloud / name).is_file()] == []
