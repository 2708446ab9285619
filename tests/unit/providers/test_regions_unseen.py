"""A region that refuses hides no other region, and proves nothing of itself."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from orchestrator.cli.gc import gc_text
from orchestrator.errors import Fault, ProviderError
from orchestrator.leases import reaper
from orchestrator.leases.down import down
from orchestrator.leases.gc import gc
from orchestrator.leases.status import status
from orchestrator.model import LABEL_LASTS, LABEL_OWNER, Machine, MachineState, unseen_in
from orchestrator.providers.memory import CATALOG, MemoryProvider
from orchestrator.providers.regions import list_regions
from orchestrator.report.lease import down_text, status_text
from orchestrator.session import machines
from orchestrator.session import owner as identity
from orchestrator.session.project import Project
from tests.unit.memory_cloud import intent, leased, opened_lease, serve, spec_for

HERE = CATALOG[0]
THERE = replace(HERE, region="q2", zone="q2-a")


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MemoryProvider:
    monkeypatch.setattr(machines, "_POLL_SECONDS", 0.0)
    monkeypatch.setenv("ORCH_STATE_HOME", str(tmp_path / "state"))
    made = MemoryProvider(catalog=(HERE, THERE))
    serve(made, monkeypatch, "memory", "local")
    return made


@pytest.fixture
def held(cloud: MemoryProvider, tmp_path: Path) -> tuple[Project, Machine, Machine]:
    """A lease in each region, of which the second refuses from now on."""
    project = Project(tmp_path)
    found = [lease(project, name, cloud, offer) for name, offer in (("here", HERE), ("there", THERE))]
    cloud.deny("q2")
    return project, found[0], found[1]


def lease(project: Project, name: str, cloud: MemoryProvider, offer=HERE) -> Machine:  # type: ignore[no-untyped-def]
    spec = spec_for(name, offer=offer)
    spec = replace(spec, labels={**spec.labels, LABEL_OWNER: identity.owner(cloud), LABEL_LASTS: "0"})
    identity.note_folder(name, project.root)
    return leased(project, name, cloud, spec)


def alive(cloud: MemoryProvider) -> set[str]:
    return {machine.id for machine in cloud.alive()}


Held = tuple[Project, Machine, Machine]


def test_status_knows_the_others_and_says_why_it_does_not_know_one(held: Held) -> None:
    project, _, _ = held
    told = {one.lease: one for one in status(folder=project.root, ask=True)}
    assert (told["here"].state, told["here"].unseen) == ("running", None)
    assert told["there"].state == "unknown"
    assert "q2" in str(told["there"].unseen)
    assert "q2 refuses" in status_text(list(told.values()))


def test_down_ends_what_is_elsewhere(held: Held, cloud: MemoryProvider) -> None:
    project, here, there = held
    assert down("here", folder=project.root).machines == (here.id,)
    assert alive(cloud) == {there.id}


def test_down_does_not_prove_what_is_in_the_region(held: Held, cloud: MemoryProvider) -> None:
    project, _, there = held
    with pytest.raises(ProviderError, match="not known") as refused:
        down("there", folder=project.root)
    assert refused.value.fault is Fault.AUTH
    assert there.id in str(refused.value.exists)
    assert {one.id for one in project.open_leases()} == {"here", "there"}
    assert there.id in alive(cloud)


@pytest.mark.parametrize("zone", ["q2-a", ""])
def test_a_create_call_without_an_answer_may_have_made_one_there(
    cloud: MemoryProvider, tmp_path: Path, zone: str
) -> None:
    project = Project(tmp_path)
    ledger = opened_lease(project, "lost")
    intent(ledger, spec_for("lost", offer=replace(THERE, zone=zone)))
    cloud.deny("q2")
    with pytest.raises(ProviderError, match="q2"):
        down("lost", folder=tmp_path)
    assert project.open_leases()


def test_a_refused_region_in_which_nothing_was_asked_for_blocks_no_down(
    cloud: MemoryProvider, tmp_path: Path
) -> None:
    project = Project(tmp_path)
    intent(opened_lease(project, "lost"), spec_for("lost"))
    cloud.deny("q2")
    assert down("lost", folder=tmp_path).proven_gone


def test_down_all_ends_what_it_sees_and_names_the_region(held: Held, cloud: MemoryProvider) -> None:
    project, here, there = held
    report = down(folder=project.root, everything=True, clouds=("memory",))
    assert report.machines == (here.id,)
    assert alive(cloud) == {there.id}
    assert not report.proven_gone
    assert "memory q2" in report.unseen
    assert "nothing is left" not in down_text(report)
    assert "memory q2 did not answer" in down_text(report)
    assert [one.id for one in project.open_leases()] == ["there"]
    assert report.left == ()


def test_gc_and_the_reaper_end_what_they_see_and_fail(
    held: Held, cloud: MemoryProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, there = held
    later = datetime.fromtimestamp(2_000_000_000, UTC)
    report = gc(["memory"], now=later)
    assert not report.proven
    assert list(report.unseen) == ["memory q2"]
    assert len(report.of("ended")) == 1
    assert alive(cloud) == {there.id}
    assert "memory q2 did not answer" in gc_text(report.as_json())
    monkeypatch.setenv(reaper.CLOUD, "memory")
    with pytest.raises(reaper.Unproven, match="memory q2"):
        reaper.handler({}, None)


# ---------------------------------------------------------------- AWS, by its own answers

_NONE = b"<DescribeInstancesResponse><requestId>r</requestId><reservationSet/></DescribeInstancesResponse>"
_REFUSED = b"<Response><Errors><Error><Code>%s</Code><Message>no</Message></Error></Errors></Response>"


class Body(io.BytesIO):
    def stream(self, **_: object) -> Iterator[bytes]:
        yield self.read()


@pytest.mark.parametrize("code", ["UnauthorizedOperation", "AccessDenied", "OptInRequired", "AuthFailure"])
def test_a_region_of_aws_that_refuses_hides_no_other(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("boto3")
    from botocore.awsrequest import AWSResponse

    from orchestrator.providers.aws.provider import AwsProvider
    from orchestrator.providers.aws.settings import read

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "none")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")  # nobody listens; nothing is sent there
    provider = AwsProvider(read({"ORCH_AWS_REGIONS": "us-east-1,us-west-2"}))

    def answer(region: str) -> Callable[..., AWSResponse]:
        status, body = (403, _REFUSED % code.encode()) if region == "us-west-2" else (200, _NONE)
        return lambda request, **_: AWSResponse(request.url, status, {"content-type": "text/xml"}, Body(body))

    for region in ("us-east-1", "us-west-2"):
        provider._clients.ec2(region).meta.events.register("before-send", answer(region))
    found = provider.list({})
    assert (list(found), list(unseen_in(found))) == ([], ["us-west-2"])
    refusal = unseen_in(found)["us-west-2"]
    assert (refusal.fault, refusal.code) == (Fault.AUTH, code)
    assert "us-west-2" in refusal.message


# ---------------------------------------------------------------- several regions as one list


def machine(region: str) -> Machine:
    born = datetime(2026, 1, 1, tzinfo=UTC)
    return Machine(
        "aws", f"i-{region}", region, MachineState.RUNNING, {}, "t3.micro", f"{region}a", 0.01, born
    )


def refusing(**faults: Fault):  # type: ignore[no-untyped-def]
    def list_one(region: str) -> list[Machine]:
        if region in faults:
            raise ProviderError(faults[region], f"{region} refused.", code="AccessDenied")
        return [machine(region)]

    return list_one


def test_what_answers_is_listed_beside_what_refuses() -> None:
    found = list_regions(("a", "b", "c"), refusing(b=Fault.AUTH))
    assert [one.id for one in found] == ["i-a", "i-c"]
    assert {region: error.message for region, error in unseen_in(found).items()} == {"b": "b refused."}
    assert unseen_in(list_regions(("a", "b"), refusing())) == {}


@pytest.mark.parametrize("faults", [{"a": Fault.AUTH, "b": Fault.AUTH}, {"b": Fault.TRANSIENT}])
def test_all_that_refuse_and_one_that_fails_are_raised(faults: dict[str, Fault]) -> None:
    with pytest.raises(ProviderError) as refused:
        list_regions(("a", "b"), refusing(**faults))
    assert refused.value.fault in faults.values()
