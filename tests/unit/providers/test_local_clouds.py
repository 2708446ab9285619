"""The registry, the cloud in memory as its tests see it, and the provider that tries again."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import AcceleratorNeed, Bound, MachineSpec, MachineState, Need
from orchestrator.providers import open_provider
from orchestrator.providers.memory import CATALOG, MemoryProvider, Mishap, Temper
from orchestrator.providers.memory_catalog import GIB
from orchestrator.providers.retry import RetryingProvider

TRANSIENT = Mishap(Fault.TRANSIENT)


class Clock:
    def __init__(self) -> None:
        self.now = 1_900_000_000.0
        self.pauses: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


def spec(clock: Clock, name: str = "a", attempt: int = 1) -> MachineSpec:
    deadline = datetime.fromtimestamp(clock.now, UTC) + timedelta(hours=1)
    return MachineSpec(name, attempt, CATALOG[0], GIB, deadline, {"lease": "l"}, "ssh-ed25519 AAAA")


def fault_of(call: Callable[[], object]) -> Fault:
    with pytest.raises(ProviderError) as raised:
        call()
    return raised.value.fault


# ---------------------------------------------------------------- registry


def test_providers_open_by_name(tmp_path: Path) -> None:
    assert open_provider("memory").name == "memory"
    assert open_provider("local", state=tmp_path).name == "local"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gpc", "Did you mean gcp?"),
        ("locla", "Did you mean local?"),
        ("", "no provider"),
    ],
)
def test_other_names_are_refused_with_a_hint(name: str, words: str) -> None:
    with pytest.raises(ProviderError, match=words) as refused:
        open_provider(name)
    assert refused.value.fault is Fault.INVALID


def test_the_registry_loads_no_provider() -> None:
    program = (
        "import sys, orchestrator.providers; print(sorted(m for m in sys.modules if '.providers.' in m))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=Path(__file__).parents[3]
    )
    assert done.stdout.strip() == "[]", done.stderr


# ---------------------------------------------------------------- the cloud in memory


def test_a_failure_after_the_effect_has_made_the_machine(clock: Clock) -> None:
    cloud = MemoryProvider(clock=clock)
    cloud.fail_next("create", Mishap(Fault.UNKNOWN, after_effect=True), Mishap(Fault.UNKNOWN))
    assert fault_of(lambda: cloud.create(spec(clock))) is Fault.UNKNOWN
    assert [machine.name for machine in cloud.list({})] == ["a-1"]
    assert fault_of(lambda: cloud.create(spec(clock, "b"))) is Fault.UNKNOWN
    assert [machine.name for machine in cloud.alive()] == ["a-1"]


def test_it_is_listed_late_and_runs_later(clock: Clock) -> None:
    cloud = MemoryProvider(clock=clock, temper=Temper(visible_after=10, running_after=30, gone_after=5))
    made = cloud.create(spec(clock))
    assert cloud.list({}) == []
    clock.sleep(10)
    assert [machine.state for machine in cloud.list({})] == [MachineState.PENDING]
    assert cloud.endpoint(made) is None
    clock.sleep(20)
    assert [machine.state for machine in cloud.list({})] == [MachineState.RUNNING]
    cloud.delete(made)
    assert [machine.state for machine in cloud.list({})] == [MachineState.STOPPING]
    assert cloud.alive() == []
    clock.sleep(5)
    assert cloud.list({}) == []


def test_capacity_and_quota_are_told_apart(clock: Clock) -> None:
    cloud = MemoryProvider(clock=clock, quota_cpus=3)
    cloud.sell_out("small", "r1-a")
    assert fault_of(lambda: cloud.create(spec(clock))) is Fault.CAPACITY
    cloud.restock()
    made = cloud.create(spec(clock))
    assert fault_of(lambda: cloud.create(spec(clock, "b"))) is Fault.QUOTA
    cloud.kill(made)
    assert cloud.create(spec(clock, "b")).name == "b-1"


def test_what_it_does_not_sell_is_invalid(clock: Clock) -> None:
    wrong = replace(spec(clock), offer=replace(CATALOG[0], zone="moon"))
    assert fault_of(lambda: MemoryProvider(clock=clock).create(wrong)) is Fault.INVALID


@pytest.mark.parametrize(
    ("need", "types"),
    [
        (Need("memory"), ["small", "small", "large", "gpu"]),
        (Need("memory", zone="r1-b"), ["small"]),
        (Need("memory", spot=True), ["small"]),
        (Need("memory", cpus=Bound(4, at_least=True)), ["large", "gpu"]),
        (Need("memory", cpus=Bound(4)), ["gpu"]),
        (Need("memory", max_price=0.05), ["small"]),
        (Need("memory", accelerator=AcceleratorNeed(name="T4")), ["gpu"]),
        (Need("memory", accelerator=AcceleratorNeed(count=Bound(2))), []),
        (Need("memory", arch="arm64"), []),
    ],
)
def test_offers_are_what_serves_cheapest_first(need: Need, types: list[str]) -> None:
    assert [offer.instance_type for offer in MemoryProvider().offers(need)] == types


# ---------------------------------------------------------------- trying again


def retrying(
    cloud: MemoryProvider, clock: Clock, chance: float = 1.0, deadline_s: float = 60
) -> RetryingProvider:
    return RetryingProvider(
        cloud, clock=clock, sleep=clock.sleep, random=lambda: chance, base_s=1, cap_s=8, deadline_s=deadline_s
    )


def test_pauses_double_up_to_a_cap_and_are_jittered_in_full(clock: Clock) -> None:
    cloud = MemoryProvider(clock=clock)
    cloud.fail_next("list", *[TRANSIENT] * 6)
    assert retrying(cloud, clock).list({}) == []
    assert clock.pauses == [1, 2, 4, 8, 8, 8]
    clock.pauses.clear()
    cloud.fail_next("list", *[TRANSIENT] * 3)
    retrying(cloud, clock, chance=0.25).list({})
    assert clock.pauses == [0.25, 0.5, 1.0]


def test_it_gives_up_at_its_deadline_with_the_last_error(clock: Clock) -> None:
    cloud = MemoryProvider(clock=clock)
    cloud.fail_next("list", *[TRANSIENT] * 100)
    started = clock.now
    assert fault_of(lambda: retrying(cloud, clock, deadline_s=20).list({})) is Fault.TRANSIENT
    assert clock.now - started <= 20


@pytest.mark.parametrize("fault", sorted(set(Fault) - {Fault.TRANSIENT, Fault.BUSY}))
def test_no_other_fault_is_repeated(fault: Fault, clock: Clock) -> None:
    cloud = MemoryProvider(clock=clock)
    cloud.fail_next("create", Mishap(fault), None)
    provider = retrying(cloud, clock)
    assert fault_of(lambda: provider.create(spec(clock))) is fault
    assert clock.pauses == []
    assert cloud.alive() == []


def test_every_call_persists_and_creates_one_machine(clock: Clock) -> None:
    cloud = MemoryProvider(clock=clock)
    after = Mishap(Fault.TRANSIENT, after_effect=True)
    for operation in ("offers", "create", "list", "endpoint", "delete"):
        cloud.fail_next(operation, TRANSIENT, after)
    provider = retrying(cloud, clock)
    assert provider.name == "memory"
    assert provider.offers(Need("memory"))
    made = provider.create(spec(clock))
    assert [machine.id for machine in provider.list({})] == [made.id]
    assert provider.endpoint(made) is not None
    provider.delete(made)
    assert len(clock.pauses) == 10
    assert cloud.alive() == []
