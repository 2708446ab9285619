"""terraform/: its form, its types by the providers' schemas, its names as the code has them, and what it
must never do. Each check is shown to fail by a planted fault."""

from __future__ import annotations

import functools
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from orchestrator.leases import reaper
from orchestrator.providers.aws import network as aws_network
from orchestrator.providers.aws import settings as aws_settings
from orchestrator.providers.gcp import clients as gcp_clients
from orchestrator.providers.gcp import names as gcp_names
from orchestrator.providers.gcp import request as gcp_request
from tests.conftest import ROOT
from tests.unit.terraform_files import (
    CLOUDS,
    TERRAFORM,
    Block,
    blocks,
    literal,
    problems,
    schema,
    sources,
    top,
    unformatted,
)

Texts = Mapping[str, str]

read = functools.cache(sources)
known = functools.cache(schema)

PLANTED = [
    # cloud, what is replaced by what (the first time), what is said of it
    ("aws", "cidr_block           = var.network", "cidr           = var.network", "cidr is no argument"),
    ("aws", "enable_dns_hostnames = true", 'enable_dns_hostnames = "perhaps"', "'perhaps' is no bool"),
    ("aws", "from_port         = 22", 'from_port         = "ssh"', "'ssh' is no number"),
    ("aws", 'tags                 = { Name = "orch" }', 'tags                 = "orch"', "is no map(string)"),
    (
        "aws",
        "  vpc_id            = aws_vpc.orch",
        "  # vpc_id            = aws_vpc.orch",
        "vpc_id is missing",
    ),
    ("aws", 'resource "aws_vpc" "orch"', 'resource "aws_vpn" "orch"', "no schema was distilled"),
    (
        "aws",
        "gateway_id             = aws_internet_gateway.orch",
        "gateway_id = aws_internet_gateway.other",
        "is nowhere",
    ),
    ("aws", "aws_iam_group.orch.name", "aws_iam_group.orch.title", "aws_iam_group.orch has no title"),
    ("aws", "flexible_time_window {", "flexible_window {", "flexible_window is no block"),
    ("aws", 'mode = "OFF"', 'moody = "OFF"', "flexible_time_window.mode is missing"),
    ("aws", 'dynamic "notification"', 'dynamic "notice"', "notice is no block"),
    ("aws", "var.reaper_schedule", "var.reaper_clock", "var.reaper_clock is nowhere"),
    ("gcp", "user_project_override = true", "user_project = true", "user_project is no argument"),
    ("gcp", 'protocol = "tcp"', 'protocols = "tcp"', "allow.protocols is no argument"),
    ("gcp", 'ports    = ["22"]', 'ports    = "22"', "is no list(string)"),
    ("gcp", '      type = "Delete"', '      typed = "Delete"', "lifecycle_rule.action.type is missing"),
    (
        "gcp",
        "  versioning {\n    enabled = true\n  }",
        "  versioning {\n    enabled = true\n  }\n  versioning {\n    enabled = true\n  }",
        "may stand once",
    ),
    ("gcp", "google_service_account.clock[0].email", "google_service_account.watch[0].email", "is nowhere"),
    ("gcp", "google_cloud_run_v2_job.reaper[0].id}", "google_cloud_run_v2_job.reaper[0].url}", "has no url"),
]


def planted(cloud: str, old: str, new: str) -> dict[str, str]:
    texts = dict(read(cloud))
    file = next(name for name, text in texts.items() if old in text)
    texts[file] = texts[file].replace(old, new, 1)
    return texts


# ---------------------------------------------------------------- schemas and form


@pytest.mark.parametrize("cloud", CLOUDS)
def test_every_block_and_argument_is_one_of_the_provider(cloud: str) -> None:
    assert problems(read(cloud), known(cloud)) == []


@pytest.mark.parametrize(("cloud", "old", "new", "said"), PLANTED, ids=[case[3] for case in PLANTED])
def test_the_schemas_find(cloud: str, old: str, new: str, said: str) -> None:
    found = problems(planted(cloud, old, new), known(cloud))
    assert any(said in one for one in found), found


@pytest.mark.parametrize("cloud", CLOUDS)
def test_the_providers_are_pinned_to_the_schemas(cloud: str) -> None:
    """`~> 6.25` where 6.25.0 was read: newer ones of the same major version only add."""
    found = known(cloud)
    major, minor, _ = found["version"].split(".")
    text = read(cloud)["versions.tf"]
    assert f'source  = "{found["provider"]}"' in text
    assert f'version = "~> {major}.{minor}"' in text


@pytest.mark.parametrize("cloud", CLOUDS)
def test_the_files_are_formatted(cloud: str) -> None:
    assert {name: said for name, text in read(cloud).items() if (said := unformatted(text))} == {}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("  cidr_block           = var.network", "  cidr_block = var.network"),
        ("  region               = each.key", "   region               = each.key"),
        ("  region               = each.key", "  region               = each.key "),
        ("  region               = each.key", "\tregion               = each.key"),
    ],
)
def test_the_form_is_looked_at(old: str, new: str) -> None:
    assert unformatted(planted("aws", old, new)["network.tf"])


@pytest.mark.skipif(
    not (shutil.which("terraform") or shutil.which("tofu")), reason="no terraform, no tofu here"
)
def test_terraform_itself_would_not_change_the_form() -> None:
    program = shutil.which("terraform") or shutil.which("tofu") or ""
    found = subprocess.run(
        [program, "fmt", "-check", "-recursive"], cwd=TERRAFORM, capture_output=True, text=True
    )
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize("cloud", CLOUDS)
def test_variables_and_outputs_say_what_they_are(cloud: str) -> None:
    described = {**top(read(cloud), "variable"), **top(read(cloud), "output")}
    assert [name for name, body in described.items() if len(literal(body.get("description", ""))) < 10] == []
    assert [name for name, body in top(read(cloud), "variable").items() if "type" not in body] == []


# ---------------------------------------------------------------- what it must never do


UNNARROWED = {
    "ssm:UpdateInstanceInformation",
    *(f"ssmmessages:{verb}{kind}Channel" for verb in ("Create", "Open") for kind in ("Control", "Data")),
}
"""What the agent of Session Manager calls: by AWS's own tables none of it can name a resource."""


def unsafe(texts: Texts) -> Iterator[str]:
    """Doors that are open to the world, secrets, and policies that allow too much."""
    for block in blocks(texts):
        body = literal(block.body)
        yield from (f"{block.address}: {what}" for what in _open_doors(block, body))
        yield from (f"{block.address}: {what}" for what in _wide(block, body))
    yield from _ranges(texts)
    for name, text in texts.items():
        yield from (f"{name}: {secret}" for secret in _secrets(text))


def _open_doors(block: Block, body: Mapping[str, Any]) -> Iterator[str]:
    lets_in = block.type == "aws_vpc_security_group_ingress_rule" or body.get("direction") == "INGRESS"
    if lets_in and ("0.0.0.0" in str(body) or "::/0" in str(body)):
        yield "lets in the world"
    if lets_in and not _is_https_from_machines(block, body) and not _is_ssh(body):
        yield "lets in something else than ssh"
    if block.type in ("aws_security_group", "aws_default_security_group") and body.keys() & {
        "ingress",
        "egress",
    }:
        yield "has rules of its own"
    if block.type in ("aws_iam_access_key", "google_service_account_key", "aws_iam_user_login_profile"):
        yield "is a secret, and lies in the state"
    if "allUsers" in str(body) or "allAuthenticatedUsers" in str(body) or "public-read" in str(body):
        yield "is for everybody"


def _is_ssh(body: Mapping[str, Any]) -> bool:
    if "allow" in body:
        return [(one["protocol"], one["ports"]) for one in body["allow"]] == [("tcp", ["22"])]
    return (body["ip_protocol"], body["from_port"], body["to_port"]) == ("tcp", 22, 22)


def _is_https_from_machines(block: Block, body: Mapping[str, Any]) -> bool:
    """Endpoints of the tunnel, inside the network: https from the group of orch's machines, no address."""
    return (
        block.address == "aws_vpc_security_group_ingress_rule.endpoints"
        and "aws_security_group.endpoints[" in body["security_group_id"]
        and "aws_security_group.ssh[" in body["referenced_security_group_id"]
        and not body.keys() & {"cidr_ipv4", "cidr_ipv6", "prefix_list_id"}
        and (body["ip_protocol"], body["from_port"], body["to_port"]) == ("tcp", 443, 443)
    )


def _wide(block: Block, body: Mapping[str, Any]) -> Iterator[str]:
    for statement in body.get("statement", ()) if block.type == "aws_iam_policy_document" else ():
        if statement.get("effect") == "Deny":
            continue
        if any("*" in action for action in statement["actions"]):
            yield "allows actions by a wildcard"
        if "*" in statement.get("resources", ()) and not set(statement["actions"]) <= UNNARROWED:
            yield "allows on everything"
        if any("*" in str(one["identifiers"]) for one in statement.get("principals", ())):
            yield "allows everybody"
    if block.type.endswith("_iam_member") and str(body["role"]) in (
        "roles/owner",
        "roles/editor",
        "roles/viewer",
    ):
        yield "grants a role of the whole project"


def _ranges(texts: Texts) -> Iterator[str]:
    cidrs = top(texts, "variable")["ssh_cidrs"]
    if "default" in cidrs:
        yield "ssh_cidrs has a default"
    if not any(">= 8" in rule["condition"] for rule in cidrs.get("validation", ())):
        yield "ssh_cidrs may be the whole world"


def _secrets(text: str) -> Iterator[str]:
    secret = r"AKIA[0-9A-Z]{16}|BEGIN [A-Z ]*PRIVATE KEY|(?i:password|secret|token|access_key)\w*\s*=\s*\""
    yield from re.findall(secret, text)


UNSAFE = [
    ("aws", "cidr_ipv4         = each.value.range", 'cidr_ipv4         = "0.0.0.0/0"', "lets in the world"),
    ("aws", "to_port           = 22", "to_port           = 65535", "something else than ssh"),
    ("aws", 'actions   = ["s3:ListBucket"]', 'actions   = ["s3:*"]', "actions by a wildcard"),
    ("aws", "resources = [aws_s3_bucket.orch.arn]", 'resources = ["*"]', "allows on everything"),
    ("aws", "identifiers = var.trusted_arns", 'identifiers = ["*"]', "allows everybody"),
    (
        "aws",
        "type        = set(string)",
        'type        = set(string)\n  default     = ["0.0.0.0/0"]',
        "has a default",
    ),
    ("aws", ">= 8, false", ">= 0, false", "may be the whole world"),
    ("aws", 'tags                 = { Name = "orch" }', 'tags = { k = "AKIAIOSFODNN7EXAMPLE" }', "AKIA"),
    ("aws", "from_port                    = 443", "from_port = 0", "something else than ssh"),
    (
        "aws",
        "referenced_security_group_id = aws_security_group.ssh[each.key].id",
        'cidr_ipv4 = "10.0.0.0/8"\n  referenced_security_group_id = aws_security_group.ssh[each.key].id',
        "something else than ssh",
    ),
    ("aws", '"ssmmessages:OpenDataChannel",', '"ssm:GetParameter",', "allows on everything"),
    ("gcp", 'source_ranges = ["35.235.240.0/20"]', 'source_ranges = ["::/0"]', "lets in the world"),
    ("gcp", "source_ranges = var.ssh_cidrs", 'source_ranges = ["0.0.0.0/0"]', "lets in the world"),
    ("gcp", 'ports    = ["22"]', 'ports    = ["0-65535"]', "something else than ssh"),
    ("gcp", "member = each.key", 'member = "allUsers"', "is for everybody"),
    ("gcp", 'role   = "roles/storage.objectUser"', 'role   = "roles/editor"', "role of the whole project"),
]


@pytest.mark.parametrize("cloud", CLOUDS)
def test_nothing_is_open_or_secret_or_allowed_too_widely(cloud: str) -> None:
    assert list(unsafe(read(cloud))) == []


@pytest.mark.parametrize(("cloud", "old", "new", "said"), UNSAFE, ids=[f"{c[0]}: {c[3]}" for c in UNSAFE])
def test_the_unsafe_is_noticed(cloud: str, old: str, new: str, said: str) -> None:
    found = list(unsafe(planted(cloud, old, new)))
    assert any(said in one for one in found), found


def the(cloud: str, type_: str, name: str = "orch") -> dict[str, Any]:
    found = [one for one in blocks(read(cloud)) if (one.type, one.name) == (type_, name)]
    assert len(found) == 1, f"{type_}.{name}"
    body: dict[str, Any] = literal(found[0].body)
    return body


def test_the_bucket_of_aws_is_private_versioned_encrypted_and_cleaned() -> None:
    private = the("aws", "aws_s3_bucket_public_access_block")
    closed = ("block_public_acls", "block_public_policy", "ignore_public_acls", "restrict_public_buckets")
    assert [private[name] for name in closed] == [True] * 4
    assert the("aws", "aws_s3_bucket_versioning")["versioning_configuration"][0]["status"] == "Enabled"
    rule = the("aws", "aws_s3_bucket_server_side_encryption_configuration")["rule"][0]
    assert rule["apply_server_side_encryption_by_default"][0]["sse_algorithm"] == "AES256"
    (old,) = the("aws", "aws_s3_bucket_lifecycle_configuration")["rule"]
    assert old["status"] == "Enabled"
    assert "noncurrent_version_expiration" in old
    assert the("aws", "aws_s3_bucket")["lifecycle"][0]["prevent_destroy"] is True


def test_the_bucket_of_aws_is_reached_by_tls_alone() -> None:
    (guard,) = the("aws", "aws_iam_policy_document", "bucket_guard")["statement"]
    assert (guard["effect"], guard["actions"]) == ("Deny", ["s3:*"])
    assert guard["condition"][0] == {"test": "Bool", "variable": "aws:SecureTransport", "values": ["false"]}
    assert len(guard["resources"]) == 2
    assert the("aws", "aws_s3_bucket_policy")["policy"] == "${data.aws_iam_policy_document.bucket_guard.json}"


def test_the_bucket_of_google_is_private_versioned_and_cleaned() -> None:
    bucket = the("gcp", "google_storage_bucket")
    assert bucket["uniform_bucket_level_access"] is True
    assert bucket["public_access_prevention"] == "enforced"
    assert bucket["versioning"][0]["enabled"] is True
    assert {rule["action"][0]["type"] for rule in bucket["lifecycle_rule"]} == {
        "Delete",
        "AbortIncompleteMultipartUpload",
    }
    assert bucket["lifecycle"][0]["prevent_destroy"] is True


@pytest.mark.parametrize("cloud", CLOUDS)
def test_the_reaper_is_off_unless_asked_for(cloud: str) -> None:
    assert top(read(cloud), "variable")["reaper_wheel"]["default"] is None
    text = read(cloud)["reaper.tf"]
    made = re.findall(r'^resource "(\w+)" "(\w+)" \{\n  (count|for_each)', text, re.MULTILINE)
    assert len(made) == text.count('resource "')
    assert {"aws": f"{reaper.__name__}.handler", "gcp": "orch gc --cloud gcp"}[cloud] in text


def test_a_reaper_that_fails_is_told_by_mail() -> None:
    fails, absent = (
        the("aws", "aws_cloudwatch_metric_alarm", f"reaper_{name}") for name in ("fails", "absent")
    )
    assert (fails["metric_name"], fails["threshold"], absent["metric_name"]) == ("Errors", 1, "Invocations")
    assert absent["treat_missing_data"] == "breaching"
    assert fails["alarm_actions"] == absent["alarm_actions"] == ["${aws_sns_topic.reaper[0].arn}"]
    assert the("aws", "aws_sns_topic_subscription", "reaper")["protocol"] == "email"
    policy = the("gcp", "google_monitoring_alert_policy", "reaper")
    assert "google_monitoring_notification_channel.mail" in str(policy["notification_channels"])
    assert "completed_execution_count" in str(policy["conditions"])


def test_the_reaper_s_function_needs_no_package_but_orch() -> None:
    """Lambda has boto3, and a wheel is the zip that it takes: nothing else is installed."""
    code = f"import sys; sys.path.append({str(ROOT)!r}); import {reaper.__name__}"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    variables = the("aws", "aws_lambda_function", "reaper")["environment"][0]["variables"]
    assert variables[reaper.CLOUD] == "aws"
    assert aws_settings.read({"ORCH_AWS_REGIONS": variables["ORCH_AWS_REGIONS"]}).everywhere


# ---------------------------------------------------------------- names as the code has them


def test_the_group_is_the_one_that_orch_looks_for() -> None:
    assert the("aws", "aws_security_group", "ssh")["name"] == aws_network.GROUP
    for type_ in ("aws_vpc", "aws_subnet"):
        tags = the("aws", type_)["tags"]
        assert aws_network._is_ours({"Tags": [{"Key": "Name", "Value": tags["Name"]}]})


def test_the_firewall_is_for_the_tag_that_orch_gives() -> None:
    assert the("gcp", "google_compute_firewall", "ssh")["target_tags"] == [gcp_names.NETWORK_TAG]


def test_what_the_outputs_tell_is_what_the_providers_read() -> None:
    told = {cloud: literal(top(read(cloud), "output")["orch"])["value"] for cloud in CLOUDS}
    assert {cloud: value["cloud"] for cloud, value in told.items()} == {cloud: cloud for cloud in CLOUDS}
    aws = variables(told["aws"]["environment"])
    assert aws == {"ORCH_AWS_REGIONS", "ORCH_AWS_INSTANCE_PROFILE", "ORCH_AWS_ADDRESS"}
    assert '{ ORCH_AWS_ADDRESS = "ssm" }' in read("aws")["outputs.tf"]
    found = aws_settings.read(
        {
            "ORCH_AWS_REGIONS": "us-east-1,eu-west-1",
            "ORCH_AWS_INSTANCE_PROFILE": "orch-machine",
            "ORCH_AWS_ADDRESS": "ssm",
        }
    )
    assert found.regions == ("us-east-1", "eu-west-1")
    assert (found.instance_profile, found.address) == ("orch-machine", aws_settings.SSM)
    google = variables(told["gcp"]["environment"])
    assert google == {"GOOGLE_CLOUD_PROJECT", "ORCH_GCP_SUBNETWORK", "ORCH_GCP_INTERNAL"}
    assert '{ ORCH_GCP_INTERNAL = "iap" }' in read("gcp")["outputs.tf"]
    assert gcp_clients.project_in({"GOOGLE_CLOUD_PROJECT": "mine"}) == "mine"
    made = the("gcp", "google_compute_subnetwork")["name"]
    setting = gcp_request.Setting.of("mine", {"ORCH_GCP_SUBNETWORK": made, "ORCH_GCP_INTERNAL": "iap"})
    assert setting.tunnel and setting.internal
    assert gcp_request._interface(setting, "us-central1")["subnetwork"].endswith(
        "us-central1/subnetworks/orch"
    )


def variables(told: Any) -> set[str]:
    return set(re.findall(r"\b(?:ORCH|GOOGLE)_[A-Z_]+\b", str(told)))


def test_the_schemas_are_distilled_of_no_more_than_is_used() -> None:
    for cloud in CLOUDS:
        used = {(one.kind, one.type) for one in blocks(read(cloud))}
        there = {(kind, name) for kind in ("resource", "data") for name in known(cloud)[kind]}
        assert there == used
        assert (
            json.dumps(known(cloud), indent=1, sort_keys=True) + "\n"
            == (TERRAFORM / "schema" / f"{cloud}.json").read_text()
        )
