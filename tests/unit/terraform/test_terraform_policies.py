"""What terraform/ grants is the table of permissions: nothing missing, nothing more, as narrow as it says."""

from __future__ import annotations

import json
import re
import runpy
from typing import Any

import pytest

from orchestrator.providers import permissions
from orchestrator.providers.permissions.gcp import IDENTITY
from tests.conftest import ROOT
from tests.unit.terraform_files import CLOUDS, TERRAFORM, blocks, literal, sources

NOT_BY_NAME = ["compute.resourcePolicies.create", "compute.resourcePolicies.delete"]
"""Google's conditions do not know the names of resource policies; one that something has is not deleted."""
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


def granted_by_google(name: str) -> set[tuple[str, str]]:
    """(permission, condition) of every role."""
    return {(one, role["condition"]) for role in document(name).values() for one in role["permissions"]}


def table(cloud: str) -> set[tuple[str, str, tuple[tuple[str, str, str], ...]]]:
    return {
        (one.name, resource, tuple(sorted(grant.conditions)))
        for one in permissions.of(cloud)
        if one.when != IDENTITY
        for grant in one.grants
        for resource in grant.resources
    }


def test_aws_grants_the_table_and_no_more() -> None:
    always, tunnel = granted_by_aws("aws/policy.json"), granted_by_aws("aws/tunnel-policy.json")
    assert always | tunnel == table("aws")
    assert always & tunnel == set()


def test_google_grants_the_table_and_no_more() -> None:
    granted = granted_by_google("gcp/roles.json") | granted_by_google("gcp/tunnel-roles.json")
    wanted = set()
    for name, resource, _ in table("gcp"):
        ours = re.search(r"/(instances|disks|firewalls|images)/(orch-[a-z-]*)\*$", resource)
        kind, prefix = ours.groups() if ours else ("", "")
        condition = f"resource.name.extract('/{kind}/{{name}}').startsWith('{prefix}')"
        wanted.add((name, condition if ours else ""))
    assert granted == wanted


def test_what_only_tunnels_take_is_granted_only_with_them() -> None:
    """By the names of what the table has for ssm and iap, and for an instance profile."""
    aws = {action for action, _, _ in granted_by_aws("aws/tunnel-policy.json")}
    assert aws == {"iam:PassRole", "ssm:StartSession", "ssm:TerminateSession"}
    assert granted_by_google("gcp/tunnel-roles.json") == {("iap.tunnelInstances.accessViaIAP", "")}


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
    named = {name for name, *_ in table("aws") | table("gcp")}
    for file in ("policy", "tunnel-policy", "reaper-policy"):
        named |= {action for action, _, _ in granted_by_aws(f"aws/{file}.json")}
    for file in ("roles", "tunnel-roles", "reaper-roles"):
        named |= {name for name, _ in granted_by_google(f"gcp/{file}.json")}
    assert [name for name in named if "*" in name] == []


def test_what_makes_changes_is_narrowed() -> None:
    """On AWS by tag, on Google by name: nobody else's machine can be ended."""
    for action, resource, conditions in granted_by_aws("aws/policy.json"):
        if action in ("ec2:TerminateInstances", "ec2:CreateTags") or (
            action == "ec2:RunInstances" and "instance/" in resource
        ):
            assert conditions, f"{action} on {resource}"
    free = document("gcp/roles.json")["project"]["permissions"]
    changing = [name for name in free if re.search(r"\.(delete|create|set\w+|update)$", name)]
    assert changing == NOT_BY_NAME


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
        "aws_iam_policy.tunnel": '${replace(file("${path.module}/tunnel-policy.json"), '
        '"arn:aws:iam::*:role/*", aws_iam_role.machine[0].arn)}',
    }
    for kind in ("aws_iam_group_policy_attachment", "aws_iam_role_policy_attachment"):
        arns = {body["policy_arn"] for body in attached("aws", kind).values()}
        assert arns == {
            "${aws_iam_policy.orch.arn}",
            "${aws_iam_policy.bucket.arn}",
            "${aws_iam_policy.tunnel[0].arn}",
        }
    inline = {body["policy"] for body in attached("aws", "aws_iam_role_policy").values()}
    assert inline == {
        '${file("${path.module}/reaper-policy.json")}',
        "${data.aws_iam_policy_document.reaper_log[0].json}",
        "${data.aws_iam_policy_document.clock[0].json}",
        "${data.aws_iam_policy_document.machine.json}",
    }


def test_the_role_that_may_be_passed_is_the_machines_alone() -> None:
    """terraform puts its own role where the table has any: the pattern must be there for it to replace."""
    passed = [found for found in granted_by_aws("aws/tunnel-policy.json") if found[0] == "iam:PassRole"]
    assert [resource for _, resource, _ in passed] == ["arn:aws:iam::*:role/*"]


def test_a_machine_has_a_role_only_with_the_tunnel_and_may_talk_to_its_manager_alone() -> None:
    made = [one for one in blocks(sources("aws")) if one.name in ("machine", "tunnel")]
    counted = {one.address: one.body.get("count") for one in made if one.type.startswith("aws_iam_")}
    assert all("var.tunnel" in str(count) for name, count in counted.items() if not name.startswith("data."))
    (policy,) = [one for one in made if one.address == "data.aws_iam_policy_document.machine"]
    (statement,) = literal(policy.body)["statement"]
    assert {action.split(":")[0] for action in statement["actions"]} == {"ssm", "ssmmessages"}
    verbs = {action.split(":")[1] for action in statement["actions"]}
    assert verbs == {
        "UpdateInstanceInformation",
        *(f"{verb}{kind}Channel" for verb in ("Create", "Open") for kind in ("Control", "Data")),
    }


def test_the_members_of_the_project_have_these_roles_and_no_others() -> None:
    roles = {name: body["role"] for name, body in attached("gcp", "google_project_iam_member").items()}
    assert roles == {
        "google_project_iam_member.orch": "${google_project_iam_custom_role.orch[each.value.role].id}",
        "google_project_iam_member.reaper": "${google_project_iam_custom_role.reaper[each.key].id}",
    }
    text = "".join(sources("gcp").values())
    (roles_of,) = re.findall(r"^  roles = merge\(\n(.*?)^  \)", text, re.MULTILINE | re.DOTALL)
    always, tunnel = roles_of.strip().splitlines()
    assert always.strip() == 'jsondecode(file("${path.module}/roles.json")),'
    assert "tunnel-roles.json" in tunnel and tunnel.strip().endswith("if var.tunnel },")
    assert 'jsondecode(file("${path.module}/reaper-roles.json"))' in text
    assert text.count("permissions = each.value.permissions") == 2


@pytest.mark.parametrize("cloud", CLOUDS)
def test_every_file_that_is_read_is_there(cloud: str) -> None:
    named = re.findall(r"\$\{path\.module\}/([\w.-]+)", "".join(sources(cloud).values()))
    assert named
    assert [name for name in named if not (TERRAFORM / cloud / name).is_file()] == []
