"""Plans: the cheapest offer that satisfies every wish, one machine kept, and a reason for all that is not."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.model import (
    LABEL_LEASE,
    LABEL_SPEC,
    AcceleratorNeed,
    Bound,
    Machine,
    MachineState,
    Need,
    Offer,
)
from orchestrator.plan import Create, Delete, Keep, Plan, plan, rank

GIB = 1 << 30
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
T4 = Offer(
    "aws", "g4dn.xlarge", "us-east-1", "us-east-1a", 4, 16 * GIB, "x86_64", 0.526, False, "T4", 1, 16 * GIB
)
LARGE = replace(T4, instance_type="g4dn.2xlarge", cpus=8, memory=32 * GIB, price=0.752)
L4 = replace(T4, instance_type="g6.xlarge", accelerator="L4", gpu_memory=24 * GIB, price=0.8048)
WEST = replace(T4, region="us-west-2", zone="us-west-2a", price=0.5)
GCP = replace(T4, cloud="gcp", instance_type="n1-t4", region="us-central1", zone="us-central1-a", price=0.54)
SPOT = replace(T4, spot=True, price=0.2)
CPU = Offer("aws", "m7i.xlarge", "us-east-1", "us-east-1a", 4, 16 * GIB, "amd64", 0.2016)
ARM = replace(CPU, instance_type="m7g.xlarge", arch="arm64", price=0.1632)
FAST = replace(CPU, instance_type="fast", local_ssd=125 * 10**9, network=25.0, price=0.3)
ALL = [T4, LARGE, L4, WEST, GCP, SPOT, CPU, ARM, FAST]


def best(need: Need, *offers: Offer) -> list[str]:
    return [f"{offer.instance_type}/{offer.zone}" for offer in rank(need, offers or ALL)]


@pytest.mark.parametrize(
    ("need", "first"),
    [
        (Need("aws"), "m7g.xlarge/us-east-1a"),
        (Need("aws", arch="x86_64"), "m7i.xlarge/us-east-1a"),
        (Need("aws", arch="amd64"), "m7i.xlarge/us-east-1a"),
        (Need("aws", accelerator=AcceleratorNeed(Bound(1), "t4")), "g4dn.xlarge/us-west-2a"),
        (
            Need("aws", accelerator=AcceleratorNeed(Bound(1), "T4"), region="us-east-1"),
            "g4dn.xlarge/us-east-1a",
        ),
        (
            Need("aws", accelerator=AcceleratorNeed(Bound(1), "T4"), zone="us-east-1a"),
            "g4dn.xlarge/us-east-1a",
        ),
        (Need("aws", accelerator=AcceleratorNeed(memory=Bound(20 * GIB, True))), "g6.xlarge/us-east-1a"),
        (
            Need("any", accelerator=AcceleratorNeed(Bound(1), "T4"), region="us-central1"),
            "n1-t4/us-central1-a",
        ),
        (Need("aws", spot=True), "g4dn.xlarge/us-east-1a"),
        (Need("aws", cpus=Bound(5, True)), "g4dn.2xlarge/us-east-1a"),
        (Need("aws", memory=Bound(32 * GIB)), "g4dn.2xlarge/us-east-1a"),
        (Need("aws", cpus=Bound(5)), None),
        (Need("aws", max_price=0.1), None),
        (Need("aws", local_ssd=100 * 10**9), "fast/us-east-1a"),
        (Need("aws", local_ssd=125 * 10**9, network=25), "fast/us-east-1a"),
        (Need("aws", local_ssd=126 * 10**9), None),
        (Need("aws", network=25.1), None),
        (Need("aws", accelerator=AcceleratorNeed(Bound(2), "T4")), None),
    ],
)
def test_the_cheapest_that_satisfies_all(need: Need, first: str | None) -> None:
    assert next(iter(best(need)), None) == first


def test_equal_prices_go_to_the_larger_then_by_name() -> None:
    same = [replace(T4, zone=zone) for zone in ("us-east-1c", "us-east-1b")]
    bigger = replace(LARGE, price=T4.price)
    assert best(Need("aws"), *same, bigger) == [
        "g4dn.2xlarge/us-east-1a",
        "g4dn.xlarge/us-east-1b",
        "g4dn.xlarge/us-east-1c",
    ]


def test_any_gpu_means_any_of_nvidia_and_a_part_is_none() -> None:
    nvidia = replace(T4, vendor="nvidia")
    amd = replace(T4, instance_type="g4ad.xlarge", vendor="amd", accelerator="RADEON-PRO-V520", price=0.1)
    part = replace(nvidia, instance_type="g6f.large", accelerator="L4", accelerator_count=0, price=0.2)
    large = AcceleratorNeed(memory=Bound(8 * GIB, True))
    made = plan(Need("aws", accelerator=large), [nvidia, amd, part], [], max_duration=60)
    assert [offer.instance_type for offer in made.offers] == ["g4dn.xlarge"]
    assert {miss.offer.instance_type: miss.reason for miss in made.rejected} == {
        "g4ad.xlarge": "its RADEON-PRO-V520 is no GPU of NVIDIA; name it to have it",
        "g6f.large": "it has a part of one L4, where 1 of a kind was asked for",
    }
    by_name = AcceleratorNeed(name="RADEON-PRO-V520")
    assert best(Need("aws", accelerator=by_name), nvidia, amd) == ["g4ad.xlarge/us-east-1a"]


def test_an_unknown_price_is_never_taken() -> None:
    assert best(Need("aws"), replace(CPU, price=float("nan")), replace(ARM, price=float("inf"))) == []


def test_a_plan_to_create() -> None:
    made = plan(Need("aws", accelerator=AcceleratorNeed(Bound(1), "T4")), ALL, [], max_duration=5400, now=NOW)
    assert made.actions == (Create("g4dn.xlarge in us-west-2a is the cheapest of 3 offers that fit"),)
    assert (made.price, made.worst_case, made.refusal) == (0.5, 0.75, None)
    assert made.deadline == NOW + timedelta(minutes=90)
    assert plan(Need("aws"), ALL, [], max_duration=60).deadline is None


@pytest.mark.parametrize(
    ("need", "reasons"),
    [
        (
            Need("aws", accelerator=AcceleratorNeed(memory=Bound(20 * GIB, True)), region="us-east-1"),
            {"g4dn.xlarge": "the memory of its GPU is 16 GiB, where 20 GiB or more was asked for"},
        ),
        (
            Need("aws", accelerator=AcceleratorNeed(Bound(1), "T4"), region="us-west-2", cpus=Bound(4)),
            {"g4dn.xlarge": "it is in us-east-1, not us-west-2"},
        ),
        (
            Need("aws", accelerator=AcceleratorNeed(Bound(1), "T4"), max_price=0.6, region="us-east-1"),
            {"g4dn.2xlarge": "$0.752 an hour is over max_price, $0.6"},
        ),
        (
            Need(
                "aws", accelerator=AcceleratorNeed(Bound(1), "T4"), max_price=0.6, nodes=3, region="us-east-1"
            ),
            {"g4dn.2xlarge": "3 machines at $0.752 an hour each are over max_price, $1.8"},
        ),
        (
            Need("aws", accelerator=AcceleratorNeed(Bound(1), "T4"), cpus=Bound(4), region="us-east-1"),
            {
                "g6.xlarge": "it has L4, not T4",
                "g4dn.2xlarge": "it has 8 CPUs, where exactly 4 CPUs was asked for",
            },
        ),
        (
            Need("aws", accelerator=AcceleratorNeed(Bound(4), "T4"), region="us-east-1"),
            {"g4dn.xlarge": "it has 1 T4, where 4 T4 was asked for"},
        ),
        (
            Need("aws", local_ssd=10**12),
            {"fast": "its local SSD is 125 GB, where 1000 GB or more was asked for"},
        ),
        (
            Need("aws", local_ssd=1, network=50),
            {"fast": "its network sustains 25 Gbps, where 50 Gbps or more was asked for"},
        ),
        (
            Need("aws", arch="arm64", memory=Bound(8 * GIB, True)),
            {"m7i.xlarge": "its processor is amd64, not arm64"},
        ),
    ],
)
def test_near_misses_say_the_one_thing(need: Need, reasons: dict[str, str]) -> None:
    found = {miss.offer.instance_type: miss.reason for miss in plan(need, ALL, [], max_duration=60).rejected}
    assert {name: found.get(name) for name in reasons} == reasons


def test_what_misses_least_comes_first_and_each_reason_is_shown() -> None:
    need = Need("aws", memory=Bound(16 * GIB, True), max_price=1, arch="x86_64")
    small = [replace(CPU, instance_type=f"small{size}", memory=size * GIB) for size in (1, 8, 15, 12)]
    dear = [replace(CPU, instance_type=f"dear{price}", price=price) for price in (2.0, 1.1)]
    rejected = plan(need, [*small, *dear, replace(ARM, price=0.1)], [], max_duration=60).rejected
    assert [miss.offer.instance_type for miss in rejected] == [
        "small15",
        "dear1.1",
        "small12",
        "m7g.xlarge",
        "dear2.0",
    ]


def test_no_offer_is_said_in_a_sentence() -> None:
    none = plan(Need("aws"), [], [], max_duration=60)
    assert (none.actions, none.price, none.refusal) == ((), None, "Nothing is offered that could fit.")
    near = plan(Need("aws", cpus=Bound(3)), [CPU], [], max_duration=60).refusal
    assert near is not None and "None of 1 offer fits; the nearest is m7i.xlarge: it has 4 CPUs" in near
    far = plan(Need("aws", cpus=Bound(3), memory=Bound(GIB)), [CPU], [], max_duration=60).refusal
    assert far == "None of 1 offer comes near to what is asked for."


# ---------------------------------------------------------------- machines that exist


def machine(
    name: str, state: MachineState = MachineState.RUNNING, hours: float = 1, spec: str = "s"
) -> Machine:
    labels = {LABEL_LEASE: "demo-1", LABEL_SPEC: spec}
    ends = NOW + timedelta(hours=hours)
    return Machine("aws", name, f"{name}-name", state, labels, "g4dn.xlarge", "us-east-1a", 0.5, NOW, ends)


def decided(*machines: Machine, spec: str | None = "s") -> Plan:
    return plan(Need("aws"), [CPU], machines, max_duration=3600, now=NOW, spec=spec)


def test_the_machine_there_is_is_kept() -> None:
    made = decided(machine("one", hours=3))
    assert isinstance(made.actions[0], Keep) and len(made.actions) == 1
    assert (made.price, made.worst_case, made.offers) == (0.5, 1.5, ())
    assert made.deadline == NOW + timedelta(hours=3)
    assert decided(machine("one", spec="other"), spec=None).price == 0.5
    assert decided(machine("one", MachineState.PENDING)).actions[0] == Keep(
        machine("one", MachineState.PENDING), "it is starting, and it is what the profile asks for", 0.5
    )


def test_of_two_the_one_that_runs_longest_is_kept() -> None:
    made = decided(
        machine("a", MachineState.PENDING), machine("b"), machine("c", hours=2), machine("d", hours=2)
    )
    keep, *ends = made.actions
    assert isinstance(keep, Keep) and keep.machine.id == "c"
    assert [(end.machine.id, end.reason) for end in ends if isinstance(end, Delete)] == [
        (name, "a second machine of the same lease") for name in ("d", "b", "a")
    ]


@pytest.mark.parametrize(
    ("useless", "reason"),
    [
        (machine("one", MachineState.STOPPED), "stopped"),
        (machine("one", MachineState.STOPPING), "ending already"),
        (machine("one", hours=0), "its deadline has passed"),
        (machine("one", spec="other"), "made for other resources"),
    ],
)
def test_a_machine_that_serves_no_more_is_ended_before_another_is_made(useless: Machine, reason: str) -> None:
    end, create = decided(useless).actions
    assert isinstance(end, Delete) and reason in end.reason
    assert isinstance(create, Create)


def test_as_json_is_plain_data() -> None:
    made = plan(
        Need("aws", region="us-east-1", cpus=Bound(4), arch="x86_64"), ALL, [], max_duration=7200, now=NOW
    )
    value = json.loads(json.dumps(made.as_json()))
    assert value["actions"] == [{"action": "create", "what": "a machine", "reason": made.actions[0].reason}]
    assert value["offers"][0]["instance_type"] == "m7i.xlarge"
    assert value["offers"][0]["worst_case"] == 0.4032 == value["worst_case"]
    assert value["deadline"] == "2026-03-01T14:00:00+00:00"
    assert {miss["instance_type"]: miss["reason"] for miss in value["rejected"]}["m7g.xlarge"]
    kept = json.loads(json.dumps(decided(machine("one"), machine("two", MachineState.STOPPED)).as_json()))
    assert [action["action"] for action in kept["actions"]] == ["keep", "delete"]


# ---------------------------------------------------------------- for every need and catalog

few = st.sampled_from
offers = st.builds(
    Offer,
    cloud=few(["aws", "gcp"]),
    instance_type=few("abcdef"),
    region=few(["r1", "r2"]),
    zone=few(["r1-a", "r1-b", "r2-a"]),
    cpus=few([1, 2, 4, 8]),
    memory=few([4 * GIB, 8 * GIB, 16 * GIB]),
    arch=few(["x86_64", "arm64", "amd64"]),
    price=few([0.0, 0.1, 0.2, 0.5, 1.0, float("nan"), float("inf"), -1.0]),
    spot=st.booleans(),
    accelerator=few([None, "T4", "L4"]),
    accelerator_count=few([0, 1, 2]),
    gpu_memory=few([0, 16 * GIB, 24 * GIB]),
)
bounds = st.builds(Bound, few([1, 2, 4]), st.booleans())
sizes = st.builds(Bound, few([8 * GIB, 16 * GIB]), st.booleans())
needs = st.builds(
    Need,
    cloud=few(["aws", "gcp", "any"]),
    cpus=st.none() | bounds,
    memory=st.none() | sizes,
    accelerator=st.none()
    | st.builds(
        AcceleratorNeed, few([Bound(1), Bound(2), Bound(1, True)]), few([None, "T4", "l4"]), st.none() | sizes
    ),
    arch=few([None, "x86_64", "arm64"]),
    spot=st.booleans(),
    region=few([None, "r1"]),
    zone=few([None, "r1-a"]),
    max_price=few([None, 0.2, 1.0]),
)


def satisfies(offer: Offer, need: Need) -> bool:
    """The definition, written out once more and apart from the code."""
    gpu = need.accelerator
    wishes = [
        0 <= offer.price < float("inf"),
        need.cloud in ("any", offer.cloud),
        need.cpus is None or need.cpus.admits(offer.cpus),
        need.memory is None or need.memory.admits(offer.memory),
        need.arch is None or offer.arch.replace("amd64", "x86_64") == need.arch,
        need.spot == offer.spot,
        need.region in (None, offer.region),
        need.zone in (None, offer.zone),
        need.max_price is None or offer.price <= need.max_price,
        gpu is None or (offer.accelerator is not None and gpu.count.admits(offer.accelerator_count)),
        gpu is None or gpu.name is None or gpu.name.upper() == offer.accelerator,
        gpu is None or gpu.memory is None or gpu.memory.admits(offer.gpu_memory),
    ]
    return all(wishes)


@given(needs, st.lists(offers, max_size=25))
def test_the_chosen_satisfies_all_and_none_cheaper_does(need: Need, catalog: list[Offer]) -> None:
    made = plan(need, catalog, [], max_duration=3600)
    fitting = [offer for offer in catalog if satisfies(offer, need)]
    assert len(made.offers) == len(fitting)
    assert all(satisfies(offer, need) for offer in made.offers)
    assert [offer.price for offer in made.offers] == sorted(offer.price for offer in fitting)
    assert (made.refusal is None) == bool(fitting) == any(isinstance(a, Create) for a in made.actions)
    assert not any(satisfies(miss.offer, need) for miss in made.rejected)


@given(needs, st.lists(offers, max_size=12), st.randoms(use_true_random=False))
def test_the_order_of_the_catalog_changes_nothing(
    need: Need, catalog: list[Offer], dice: random.Random
) -> None:
    shuffled = dice.sample(catalog, len(catalog))
    assert repr(plan(need, catalog, [], max_duration=60)) == repr(plan(need, shuffled, [], max_duration=60))


machines = st.lists(
    st.builds(
        machine,
        few(["a", "b", "c", "d"]),
        few(list(MachineState)),
        few([-1.0, 0.0, 1.0, 2.0]),
        few(["s", "t"]),
    ),
    max_size=4,
    unique_by=lambda each: each.id,
)


@given(machines, st.randoms(use_true_random=False))
def test_one_machine_results_and_each_is_accounted_for(there: list[Machine], dice: random.Random) -> None:
    made = decided(*there)
    kept = [a.machine.id for a in made.actions if isinstance(a, Keep)]
    ended = [a.machine.id for a in made.actions if isinstance(a, Delete)]
    created = [a for a in made.actions if isinstance(a, Create)]
    assert len(kept) + len(created) == 1
    assert sorted(kept + ended) == sorted(each.id for each in there)
    assert decided(*dice.sample(there, len(there))) == made
