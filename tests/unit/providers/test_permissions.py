"""The table of permissions is what the code calls: no call without a permission, none without a call."""

from __future__ import annotations

import ast
import functools
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import orchestrator
from orchestrator import catalog
from orchestrator.model import LABEL_LEASE, MachineSpec, Need
from orchestrator.providers import permissions
from orchestrator.providers.gcp import calls, image_calls, request
from orchestrator.providers.gcp.images import Image
from orchestrator.providers.gcp.names import machine_name
from orchestrator.providers.gcp.refusing import Doing
from tests.clouds.gcp import permissions as emulated

ROOMS = Path(orchestrator.__file__).parent
SETUP = "setup.py"
"""Run by who may administer the account, and not by what makes machines: its calls are not in the table."""
AWS_FILES = (
    *(each for each in sorted((ROOMS / "providers/aws").glob("*.py")) if each.name != SETUP),
    ROOMS / "catalog/aws.py",
)
GCP_FILES = (
    *(each for each in sorted((ROOMS / "providers/gcp").glob("*.py")) if each.name != SETUP),
    ROOMS / "catalog/gcp.py",
)
AWS_SERVICES = ("ec2", "ssm", "sts", "pricing", "service-quotas", "iam", "s3", "freetier", "cloudwatch")
OUR_MODULES = ("request", "permissions", "tags", "images")
"""Of our own: `request.run_instances` is no call of boto3."""
_ID = re.compile(r"(compute|cloudresourcemanager)\.(?!googleapis)[a-z]\w+\.[a-z]\w+")


# ---------------------------------------------------------------- what the code calls


@functools.cache
def operations() -> dict[str, str]:
    """boto3's name of each operation, as its methods and paginators go by; and the same with its service."""
    import botocore.session
    from botocore import xform_name

    session = botocore.session.get_session()
    return {
        xform_name(name): f"{service}.{xform_name(name)}"
        for service in AWS_SERVICES
        for name in session.get_service_model(service).operation_names
    }


def words(path: Path) -> Iterator[str]:
    """Every attribute and every string of a file: calls, and what paginators are asked for by name."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute):
            if not (isinstance(node.value, ast.Name) and node.value.id in OUR_MODULES):
                yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def aws_calls() -> set[str]:
    return {operations()[word] for path in AWS_FILES for word in words(path) if word in operations()}


def gcp_clients() -> dict[str, str]:
    """The attributes of clients.Clients that are Google's, and of what: operations of zoneOperations."""
    found = {}
    for node in ast.walk(ast.parse((ROOMS / "providers/gcp/clients.py").read_text())):
        made = re.search(r"_client\('(\w+)Client'\)", ast.unparse(node))
        if isinstance(node, ast.FunctionDef) and made:
            found[node.name] = made.group(1)[0].lower() + made.group(1)[1:]
    return found


def gcp_calls() -> set[str]:
    """By client and method; of the doctor by Google's id; of the catalog by what it lists."""
    clients, found = gcp_clients(), set()
    for path in GCP_FILES:
        text = path.read_text()
        for client, method in re.findall(r"clients\.(\w+)\.([a-z_]+)\b", text):
            if client in clients:
                found.add(f"compute.{clients[client]}.{camel(method.removesuffix('_unary'))}")
        found |= {f"compute.{noun}.aggregatedList" for noun in re.findall(r'listing \+ "(\w+)"', text)}
        if "services/6F81-5844-456A/skus" in text:
            found.add("cloudbilling.services.skus.list")
    ids = words(ROOMS / "providers/gcp/readiness_calls.py")
    return found | {word for word in ids if _ID.fullmatch(word)}


def camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.title() for word in others)


def known_calls(cloud: str) -> set[str]:
    """Those of the table."""
    found = {call for one in permissions.of(cloud) for call in one.calls}
    return found | ({call for api in permissions.APIS for call in api.calls} if cloud == "gcp" else set())


@pytest.mark.parametrize(("cloud", "made"), [("aws", aws_calls()), ("gcp", gcp_calls())])
def test_every_call_has_its_permission_and_every_permission_its_call(cloud: str, made: set[str]) -> None:
    assert made == known_calls(cloud)


def test_every_client_of_google_is_seen_by_this_test() -> None:
    """A client that is made elsewhere would escape the test above."""
    made = {
        path.name
        for path in GCP_FILES
        if re.search(r"compute(_v1)?\.\w+Client\b|\b_client\(", path.read_text())
    }
    assert made == {"clients.py", "readiness_calls.py"}
    assert len(gcp_clients()) == (ROOMS / "providers/gcp/clients.py").read_text().count('self._client("')


@pytest.mark.parametrize(
    "permission", [one for one in permissions.TABLE if not one.calls], ids=lambda p: p.name
)
def test_what_another_program_calls_is_called_by_a_program_that_is_started(
    permission: permissions.Permission,
) -> None:
    assert permission.program
    files = (ROOMS / "providers" / permission.cloud).glob("*.py")
    assert any(permission.program in set(words(path)) for path in files)


# ---------------------------------------------------------------- what it says


def test_no_permission_is_there_twice_and_all_say_what_for() -> None:
    names = [one.name for one in permissions.TABLE]
    assert len(names) == len(set(names))
    assert all(one.needed and one.why and one.grants for one in permissions.TABLE)


def test_actions_of_aws_exist() -> None:
    """By boto3's own models: an action is an operation's name, but for two that no operation has."""
    import botocore.session

    session = botocore.session.get_session()
    prefixes = {"servicequotas": "service-quotas"}
    for one in permissions.of("aws"):
        service, _, action = one.name.partition(":")
        if one.name == "iam:PassRole":
            continue
        assert action in session.get_service_model(prefixes.get(service, service)).operation_names


def test_what_google_refuses_is_named_from_the_table() -> None:
    modules = (calls, image_calls)
    doings = [one for module in modules for one in vars(module).values() if isinstance(one, Doing)]
    assert doings
    for doing in doings:
        assert permissions.named(doing.permission).cloud == "gcp"


def test_the_table_has_what_google_demands_of_each_call() -> None:
    """By Google's own reference, as the emulated cloud holds it: the create call takes most."""
    offer = next(o for o in catalog.offers(Need("gcp"), clouds=("gcp",)) if o.zone)
    end = datetime.now(UTC) + timedelta(hours=1)
    spec = MachineSpec("orch-x", 0, offer, 20 << 30, end, {LABEL_LEASE: "x"}, "ssh-ed25519 AAAA x")
    body = request.instance(
        spec, request.Setting("p"), Image("projects/p/global/images/i", 10), datetime.now(UTC)
    )
    for call in known_calls("gcp") & set(emulated.NEEDED):
        taken = {one.name for one in permissions.taken_by(call)}
        assert taken >= set(emulated.needed(call, body)), call
    assert set(emulated.needed("compute.instances.insert", body)) <= {
        one.name for one in permissions.of("gcp")
    }
    narrowed = permissions.named("compute.instances.create").grants[0].resources[0].rpartition("/")[2]
    assert machine_name(spec).startswith(narrowed.removesuffix("*"))


def test_a_policy_joins_what_is_granted_alike() -> None:
    document = permissions.policy(permissions.of("aws", needed="machines"))
    statements = document["Statement"]
    assert all(each["Effect"] == "Allow" and each["Action"] and each["Resource"] for each in statements)
    shapes = [json.dumps([each["Resource"], each.get("Condition")]) for each in statements]
    assert len(shapes) == len(set(shapes))
    (ending,) = (each for each in statements if "ec2:TerminateInstances" in each["Action"])
    assert ending["Condition"] == {"StringLike": {"aws:ResourceTag/orch-machine": "orch-*"}}
    assert "ec2:CreateTags" in ending["Action"]
    assert not any("*" in each["Action"] for each in statements)


def test_all_permissions_of_aws_fit_into_one_managed_policy() -> None:
    """Which holds 6144 characters, spaces not counted."""
    document = json.dumps(permissions.policy(permissions.of("aws")))
    assert len(re.sub(r"\s", "", document)) <= 6144


def test_settings_decide_what_is_needed() -> None:
    console = permissions.named("ec2:GetConsoleOutput")
    assert console.applies({"ORCH_AWS_HOST_KEY": "console"})
    assert not console.applies({})
    public = permissions.named("compute.subnetworks.useExternalIp")
    assert public.applies({})
    assert not public.applies({"ORCH_GCP_INTERNAL": "iap"})
    assert permissions.named("ec2:RunInstances").applies({})
