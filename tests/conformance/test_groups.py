"""What every provider promises of groups: machines that reach each other, and are reached by nobody else."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence

import pytest

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import Machine
from tests.clouds import gcp
from tests.conformance.bed import Bed
from tests.conformance.test_providers import BEDS, aws, gcp_cloud
from tests.crash.calls import announce
from tests.crash.points import Points

__all__ = ["aws", "gcp", "gcp_cloud"]

GROUP = "digits-a1b2c3"
PORTS = range(20_000, 28_000)
ATTEMPTS = itertools.count(1)
"""Google remembers every machine that it was asked for, and the tests share one cloud."""


@pytest.fixture(params=BEDS)
def bed(request: pytest.FixtureRequest) -> Iterator[Bed]:
    for made in request.param(request):
        if made.reaches is None:
            pytest.skip("it connects no machines")
        yield made
        separated(made)


def up(bed: Bed, *names: str) -> list[Machine]:
    attempt = next(ATTEMPTS)
    machines = [bed.provider.create(bed.spec(name, attempt)) for name in names]
    bed.await_that(lambda: all(bed.is_running(machine) for machine in machines))
    return machines


def reaches(bed: Bed, machine: Machine, address: str, port: int) -> bool:
    assert bed.reaches is not None
    return bed.reaches(machine, address, port)


def separated(bed: Bed, group: str = GROUP) -> None:
    """Separate them as soon as the cloud lets us."""

    def done() -> bool:
        try:
            bed.provider.separate(group)
        except ProviderError as error:
            assert error.fault is Fault.TRANSIENT
            return False
        return True

    bed.await_that(done)


def test_joined_machines_reach_each_other_at_their_ports_and_nobody_else_does(bed: Bed) -> None:
    one, other, stranger = up(bed, "one", "other", "stranger")
    here, there = bed.provider.join(GROUP, [one, other], PORTS)
    for machine, address in ((one, there), (other, here)):
        assert reaches(bed, machine, address, PORTS[0])
    assert reaches(bed, one, there, PORTS[-1])
    if bed.isolates:
        assert here != there
        for port in (PORTS[0] - 1, PORTS[-1] + 1):
            assert not reaches(bed, one, there, port)
        for address in (here, there):
            assert not reaches(bed, stranger, address, PORTS[0])


def test_two_groups_do_not_reach_each_other(bed: Bed) -> None:
    one, other = up(bed, "one", "other")
    (here,) = bed.provider.join(GROUP, [one], PORTS)
    (there,) = bed.provider.join("another-group", [other], PORTS)
    try:
        if bed.isolates and here != there:
            assert not reaches(bed, one, there, PORTS[0])
            assert not reaches(bed, other, here, PORTS[0])
    finally:
        separated(bed, "another-group")


def test_joining_again_changes_nothing_and_keeps_the_order(bed: Bed) -> None:
    one, other = up(bed, "one", "other")
    first = bed.provider.join(GROUP, [one, other], PORTS)
    assert list(bed.provider.join(GROUP, [one, other], PORTS)) == list(first)
    assert list(bed.provider.join(GROUP, [other, one], PORTS)) == list(first)[::-1]
    assert reaches(bed, other, first[0], PORTS[0])


def test_a_replaced_machine_is_out_and_the_new_one_is_in(bed: Bed) -> None:
    old, stays, new = up(bed, "old", "stays", "new")
    left, kept = bed.provider.join(GROUP, [old, stays], PORTS)
    again, entered = bed.provider.join(GROUP, [stays, new], PORTS)
    assert again == kept
    assert reaches(bed, new, kept, PORTS[0])
    assert reaches(bed, stays, entered, PORTS[0])
    if bed.isolates:
        assert not reaches(bed, old, kept, PORTS[0])
        assert left == entered or not reaches(bed, stays, left, PORTS[0])


def test_a_dead_machine_is_replaced(bed: Bed) -> None:
    old, stays, new = up(bed, "old", "stays", "new")
    bed.provider.join(GROUP, [old, stays], PORTS)
    bed.provider.delete(old)
    bed.await_that(lambda: bed.provider.find(old) is None)
    kept, entered = bed.provider.join(GROUP, [stays, new], PORTS)
    assert reaches(bed, new, kept, PORTS[0])
    assert reaches(bed, stays, entered, PORTS[0])


def test_other_ports_take_the_place_of_the_first(bed: Bed) -> None:
    one, other = up(bed, "one", "other")
    first = bed.provider.join(GROUP, [one, other], PORTS)
    _, there = bed.provider.join(GROUP, [one, other], range(30_000, 30_001))
    assert reaches(bed, one, there, 30_000)
    assert there == first[1]
    if bed.isolates:
        assert not reaches(bed, one, there, PORTS[0])


def test_separated_machines_do_not_reach_each_other_and_nothing_is_left(bed: Bed) -> None:
    one, other = up(bed, "one", "other")
    _, there = bed.provider.join(GROUP, [one, other], PORTS)
    assert list(bed.groups()) or not bed.isolates
    separated(bed)
    separated(bed)
    assert list(bed.groups()) == []
    if bed.isolates:
        assert not reaches(bed, one, there, PORTS[0])
    assert bed.is_running(one)
    _, there = bed.provider.join(GROUP, [one, other], PORTS)
    assert reaches(bed, one, there, PORTS[0])


def test_the_group_of_deleted_machines_can_be_removed(bed: Bed) -> None:
    machines = up(bed, "one", "other")
    bed.provider.join(GROUP, machines, PORTS)
    for machine in machines:
        bed.provider.delete(machine)
    separated(bed)
    assert list(bed.groups()) == []
    bed.provider.separate("nobody-has-heard-of-it")


def test_what_is_left_of_a_group_is_removed_once_no_machine_is_in_it(bed: Bed) -> None:
    """Machines of this computer take their group with them. After a lost answer, a name is not told again."""
    one, other = up(bed, "one", "other")
    bed.provider.join(GROUP, [one, other], PORTS)
    before = list(bed.groups())
    assert GROUP not in bed.provider.prune() and list(bed.groups()) == before
    bed.provider.delete(one)
    bed.await_that(lambda: bed.provider.find(one) is None)
    assert GROUP not in bed.provider.prune() and list(bed.groups()) == before
    bed.provider.delete(other)
    bed.await_that(lambda: bed.provider.find(other) is None and not bed.provider.list({}))
    rehearsed = list(bed.provider.prune(dry_run=True))
    assert bool(rehearsed) == bool(bed.groups()) and rehearsed in ([], [GROUP])
    assert set(bed.provider.prune()) <= set(rehearsed)
    assert list(bed.groups()) == [] and list(bed.provider.prune()) == []


def test_a_machine_that_does_not_run_is_refused(bed: Bed) -> None:
    one, other = up(bed, "one", "other")
    bed.provider.delete(other)
    bed.await_that(lambda: bed.provider.find(other) is None)
    with pytest.raises(ProviderError) as refused:
        bed.provider.join(GROUP, [one, other], PORTS)
    assert refused.value.fault is Fault.INVALID


def test_a_machine_is_in_one_group(bed: Bed) -> None:
    if not bed.isolates:
        pytest.skip("its machines share this computer's network")
    one, other = up(bed, "one", "other")
    bed.provider.join(GROUP, [one, other], PORTS)
    with pytest.raises(ProviderError) as refused:
        bed.provider.join("another-group", [one], PORTS)
    assert refused.value.fault is Fault.CONFLICT
    separated(bed, "another-group")


def test_nonsense_is_refused(bed: Bed) -> None:
    (one,) = up(bed, "one")
    for group, ports in (
        ("", PORTS),
        ("a/b", PORTS),
        ("x" * 99, PORTS),
        (GROUP, range(0)),
        (GROUP, range(9, 1 << 20)),
    ):
        with pytest.raises(ProviderError) as refused:
            bed.provider.join(group, [one], ports)
        assert refused.value.fault is Fault.INVALID


def killed_before(effect: int | str, act: Callable[[], object]) -> bool:
    """Whether `act`, in a process of its own, was killed before this effect (see Points.arm); False if it
    came to its end.
    """
    points = Points()
    child = os.fork()
    if not child:
        announce()
        points.arm(effect)
        try:
            act()
        except BaseException:
            os._exit(1)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, points.last
    return os.WIFSIGNALED(status)


def at_every_effect(act: Callable[[], object], check: Callable[[], object]) -> int:
    effect = 1
    while killed_before(effect, act):
        check()
        effect += 1
    return effect


def test_killed_between_its_effects_it_can_be_repeated(bed: Bed) -> None:
    if not bed.outlives:
        pytest.skip("its groups end with this process")
    machines = up(bed, "one", "other")

    def join() -> Sequence[str]:
        return bed.provider.join(GROUP, machines, PORTS)

    def joined() -> None:
        here, there = join()
        assert reaches(bed, machines[0], there, PORTS[0])
        assert reaches(bed, machines[1], here, PORTS[0])
        separated(bed)
        assert list(bed.groups()) == []

    def again() -> None:
        separated(bed)
        assert list(bed.groups()) == []
        join()

    at_every_effect(join, joined)
    join()
    at_every_effect(lambda: bed.provider.separate(GROUP), again)
