"""The firewall rule of a group: what it says, and what comes of answers that are lost, late or refusals."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("google.cloud.compute_v1")
pytest.importorskip("googleapiclient")

from google.api_core import exceptions
from google.cloud import compute_v1

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import Bound, Machine, Need
from orchestrator.providers.gcp.names import GROUP_PREFIX, group_name, is_name
from orchestrator.providers.gcp.provider import GcpProvider
from orchestrator.providers.retry import RetryingProvider
from tests.clouds.gcp import Cloud
from tests.clouds.gcp.world import OPEN
from tests.clouds.gcp_client import PROJECT, Body, Google
from tests.conformance.bed import Bed

GROUP = "digits-a1b2c3"
NAME = "orch-group-digits-a1b2c3"
PORTS = range(20_000, 28_000)
NUMBERS = itertools.count()


def bed_of(google: Google, **environ: str) -> Bed:
    inner = GcpProvider({**os.environ, **google.cloud.env, **environ})
    need = Need("gcp", cpus=Bound(2), memory=Bound(8 << 30), disk=12 << 30, zone="us-central1-a")
    provider = RetryingProvider(inner, base_s=0.05, cap_s=0.2)
    return Bed(provider, need, need.disk, time.time, lambda: time.sleep(0.05))


@pytest.fixture
def bed(google: Google) -> Iterator[Bed]:
    yield bed_of(google)
    google.cloud.clear_faults()
    google.cloud.settings(firewalls=[OPEN], denied=[])


def up(bed: Bed, count: int = 2) -> list[Machine]:
    machines = [bed.provider.create(bed.spec(f"m{next(NUMBERS)}-{os.getpid()}")) for _ in range(count)]
    bed.await_that(lambda: all(bed.is_running(machine) for machine in machines))
    return machines


def rules(cloud: Cloud) -> dict[str, dict[str, Any]]:
    found = cloud.state()["settings"]["firewalls"]
    return {rule["name"]: rule for rule in found if rule["name"].startswith(GROUP_PREFIX)}


def test_the_rule_names_members_ports_and_lease_and_no_machine_changes(google: Google, bed: Bed) -> None:
    machines = up(bed)
    before = google.cloud.state()["instances"]
    addresses = bed.provider.join(GROUP, machines, PORTS)
    assert google.cloud.state()["instances"] == before
    rule = rules(google.cloud)[NAME]
    members = sorted(f"{address}/32" for address in addresses)
    assert rule["sourceRanges"] == rule["destinationRanges"] == members
    assert (rule["network"], rule["direction"]) == ("default", "INGRESS")
    assert rule["allowed"] == [{"IPProtocol": "tcp", "ports": ["20000-27999"]}]
    assert f"lease {GROUP};" in rule["description"]


def test_nothing_is_sent_where_nothing_changes_and_only_what_changes_else(google: Google, bed: Bed) -> None:
    machines = up(bed)
    bed.provider.join(GROUP, machines, PORTS)
    made = len(google.cloud.calls("compute.firewalls.insert"))
    bed.provider.join(GROUP, machines[::-1], PORTS)
    changes = google.cloud.calls("compute.firewalls.patch")
    bed.provider.join(GROUP, machines[:1], range(30_000, 30_001))
    (change,) = google.cloud.calls("compute.firewalls.patch")[len(changes) :]
    assert change["body"]["allowed"] == [{"IPProtocol": "tcp", "ports": ["30000"]}]
    assert len(change["body"]["sourceRanges"]) == 1
    assert len(google.cloud.calls("compute.firewalls.insert")) == made
    assert len(google.cloud.calls("compute.firewalls.patch")) == len(changes) + 1


@pytest.mark.parametrize("kind", ["reset", "unavailable", "truncated"])
@pytest.mark.parametrize("method", ["insert", "patch", "delete"])
def test_an_answer_that_is_lost_changes_nothing(google: Google, bed: Bed, method: str, kind: str) -> None:
    machines = up(bed, 3)
    if method != "insert":
        bed.provider.join(GROUP, machines[:2], PORTS)
    google.cloud.faults({"method": f"compute.firewalls.{method}", "kind": kind, "after_effect": True})
    if method == "delete":
        bed.provider.separate(GROUP)
        assert rules(google.cloud) == {}
        return
    addresses = bed.provider.join(GROUP, machines[1:], PORTS)
    assert rules(google.cloud)[NAME]["sourceRanges"] == sorted(f"{one}/32" for one in addresses)


def test_a_rule_that_another_call_made_meanwhile_is_taken_and_corrected(google: Google, bed: Bed) -> None:
    machines = up(bed, 3)
    bed.provider.join(GROUP, machines[:2], PORTS)
    google.cloud.faults({"method": "compute.firewalls.get", "kind": "not_found"})
    addresses = bed.provider.join(GROUP, machines[1:], PORTS)
    assert rules(google.cloud)[NAME]["sourceRanges"] == sorted(f"{one}/32" for one in addresses)


@pytest.mark.parametrize("method", ["insert", "patch", "delete"])
def test_an_operation_that_fails_is_an_error(google: Google, bed: Bed, method: str) -> None:
    machines = up(bed)
    if method != "insert":
        bed.provider.join(GROUP, machines[:1], PORTS)
    google.cloud.faults({"method": f"compute.firewalls.{method}", "kind": "quota", "metric": "FIREWALLS"})
    with pytest.raises(ProviderError) as failed:
        if method == "delete":
            bed.provider.separate(GROUP)
        else:
            bed.provider.join(GROUP, machines, PORTS)
    assert failed.value.fault is Fault.QUOTA


@pytest.mark.parametrize(
    "permission",
    ["firewalls.get", "firewalls.create", "networks.updatePolicy", "globalOperations.get", "firewalls.list"],
)
def test_a_refusal_names_the_permission(google: Google, bed: Bed, permission: str) -> None:
    machines = up(bed)
    google.cloud.settings(denied=[f"compute.{permission}"])
    with pytest.raises(ProviderError) as refused:
        bed.provider.join(GROUP, machines, PORTS)
    assert refused.value.fault is Fault.AUTH
    assert f"compute.{permission}" in refused.value.message


def test_members_of_two_networks_are_refused_and_a_group_may_move(google: Google, bed: Bed) -> None:
    (here,), (there,) = up(bed, 1), up(bed_of(google, ORCH_GCP_SUBNETWORK="orch"), 1)
    with pytest.raises(ProviderError) as refused:
        bed.provider.join(GROUP, [here, there], PORTS)
    assert refused.value.fault is Fault.INVALID
    bed.provider.join(GROUP, [here], PORTS)
    bed.provider.join(GROUP, [there], PORTS)
    assert rules(google.cloud)[NAME]["network"] == "orch"


def test_an_address_that_a_dead_member_had_may_be_in_another_group(google: Google, bed: Bed) -> None:
    """Google gives it to a new machine; the rule of the old group still has it."""
    (machine,) = up(bed, 1)
    (address,) = bed.provider.join(GROUP, [machine], PORTS)
    ended = {**rules(google.cloud)[NAME], "description": f"lease {GROUP}; members 17"}
    google.cloud.settings(firewalls=[OPEN, ended])
    assert bed.provider.join("another", [machine], PORTS) == [address]


@pytest.mark.parametrize("group", ["Digits", "a.b_c", "x" * 63, "x" * 62 + "y", "end-", "0"])
def test_every_group_has_a_valid_name_of_its_own(group: str) -> None:
    assert is_name(group_name(group))
    assert group_name(group).startswith(GROUP_PREFIX)
    assert len({group_name(one) for one in (group, f"{group[:50]}z", group.swapcase(), "digits")}) >= 3


# ------------------------------------------------------------ the emulated API is as strict

SOUND: Body = {"name": "orch-group-x", "allowed": [{"IPProtocol": "tcp", "ports": ["1-2"]}]}


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"name": "Orch"}, "resource.name"),
        ({"name": "x" * 64}, "resource.name"),
        ({"name": "end-"}, "resource.name"),
        ({"network": "global/networks/nowhere"}, "resource.network"),
        ({"network": "default"}, "resource.network"),
        ({"sourceRanges": ["10.0.0.1/8"]}, "resource.sourceRanges[0]"),
        ({"destinationRanges": ["here"]}, "resource.destinationRanges[0]"),
        ({"allowed": [{"IPProtocol": "tcp", "ports": ["2-1"]}]}, "resource.allowed[0].ports"),
        ({"allowed": [{"IPProtocol": "icmp", "ports": ["1"]}]}, "resource.allowed[0].ports"),
        ({"allowed": []}, "resource.allowed"),
        ({"priority": 70000}, "resource.priority"),
        ({"description": "x" * 2049}, "resource.description"),
        ({"direction": "EGRESS", "sourceTags": ["a"]}, "resource.sourceTags"),
    ],
)
def test_a_rule_that_google_refuses_is_refused(google: Google, changed: Body, field: str) -> None:
    with pytest.raises(exceptions.BadRequest) as refused:
        insert(firewalls(google), {**SOUND, **changed})
    assert f"'{field}'" in refused.value.message


def test_names_are_taken_at_once_and_free_when_the_operation_is_done(google: Google, bed: Bed) -> None:
    client = firewalls(google)
    insert(client, SOUND)
    with pytest.raises(exceptions.Conflict):
        insert(client, SOUND)
    bed.await_that(lambda: SOUND["name"] in rules(google.cloud))
    changed = compute_v1.Firewall.from_json(json.dumps({"network": "global/networks/orch"}))
    with pytest.raises(exceptions.BadRequest):
        client.patch_unary(project=PROJECT, firewall=SOUND["name"], firewall_resource=changed, retry=None)
    client.delete_unary(project=PROJECT, firewall=SOUND["name"], retry=None)
    bed.await_that(lambda: SOUND["name"] not in rules(google.cloud))
    with pytest.raises(exceptions.NotFound):
        client.delete_unary(project=PROJECT, firewall=SOUND["name"], retry=None)


def firewalls(google: Google) -> Any:
    from google.api_core.client_options import ClientOptions
    from google.auth.credentials import AnonymousCredentials

    options = ClientOptions(api_endpoint=google.cloud.url)
    return compute_v1.FirewallsClient(credentials=AnonymousCredentials(), client_options=options)


def insert(client: Any, rule: Body) -> Any:
    made = compute_v1.Firewall.from_json(json.dumps(rule))
    return client.insert_unary(project=PROJECT, firewall_resource=made, retry=None)
