"""What every provider promises of images, asked of all of them that make some."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import ImageState, Machine, MachineImage, MachineSpec, MachineState
from tests.conformance.bed import Bed
from tests.conformance.test_providers import BEDS, aws, gcp_cloud

__all__ = ["aws", "gcp_cloud"]

LABELS = {"orch-stack": "0123456789abcdef", "orch-base": "fedcba9876543210"}
NAME = "orch-conformance-0123456789ab"
_WITHOUT = ("local-process", "third")
"""Machines that are processes have no file system of their own; the third cloud makes no images."""


def _of_images(name: str) -> bool:
    return name not in _WITHOUT


@pytest.fixture(params=[each for each in BEDS if _of_images(str(each.id))])
def bed(request: pytest.FixtureRequest) -> Iterator[Bed]:
    for made in request.param(request):
        yield made
        made.await_that(partial(_is_emptied, made))
        for image in made.provider.images({}):
            made.provider.delete_image(image)


def _is_emptied(bed: Bed) -> bool:
    """Delete every machine; whether there was none. A cloud may list one only some time after it made it."""
    listed = bed.provider.list({})
    for machine in listed:
        bed.provider.delete(machine)
    return not listed


_NUMBERS = itertools.count()
"""Each machine has a name of its own: a cloud remembers for a while what was made under another."""


def spec(bed: Bed, attempt: int = 1) -> MachineSpec:
    return bed.spec(f"baked-{next(_NUMBERS)}", attempt)


def running(bed: Bed) -> Machine:
    made = bed.provider.create(spec(bed))
    bed.await_that(lambda: bool(bed.provider.endpoint(made)))
    return made


def baked(bed: Bed, machine: Machine, name: str = NAME) -> MachineImage:
    bed.provider.bake(machine, name, LABELS)
    bed.await_that(lambda: _state(bed, name) is ImageState.AVAILABLE)
    bed.provider.delete(machine)
    bed.await_that(lambda: bed.provider.find(machine) is None)
    return next(image for image in bed.provider.images({}) if image.name == name)


def _state(bed: Bed, name: str) -> ImageState | None:
    return next((image.state for image in bed.provider.images({}) if image.name == name), None)


def test_an_image_is_listed_with_what_it_was_given(bed: Bed) -> None:
    image = baked(bed, running(bed))
    assert (image.provider, image.name, image.state) == (bed.provider.name, NAME, ImageState.AVAILABLE)
    assert image.labels == LABELS
    assert image.reference
    assert image.created_at.tzinfo is not None
    assert abs(image.created_at.timestamp() - bed.now()) < 180
    assert image.disk <= bed.disk
    assert [one.name for one in bed.provider.images(LABELS)] == [NAME]
    assert not bed.provider.images({**LABELS, "orch-stack": "0" * 16})


def test_a_machine_boots_it_and_needs_nothing_of_the_first(bed: Bed) -> None:
    image = baked(bed, running(bed))
    made = bed.provider.create(replace(spec(bed, 2), image=image.reference))
    bed.await_that(lambda: bool(bed.provider.endpoint(made)))
    found = bed.find(made)
    assert found is not None and found.state is MachineState.RUNNING
    assert found.detail.get("image") == image.reference


def test_baking_twice_is_one_image(bed: Bed) -> None:
    machine = running(bed)
    first = bed.provider.bake(machine, NAME, LABELS)
    again = bed.provider.bake(machine, NAME, LABELS)
    assert (first.name, first.reference) == (again.name, again.reference)
    image = baked(bed, machine)
    assert bed.provider.bake(machine, NAME, LABELS).reference == image.reference  # the machine is gone
    assert len(bed.provider.images({})) == 1


def test_the_machine_runs_nothing_afterwards(bed: Bed) -> None:
    machine = running(bed)
    bed.provider.bake(machine, NAME, LABELS)
    assert not bed.is_running(machine)
    assert not bed.provider.endpoint(machine)


def test_a_name_that_other_contents_have_is_a_conflict(bed: Bed) -> None:
    baked(bed, running(bed))
    other = running(bed)
    with pytest.raises(ProviderError) as refused:
        bed.provider.bake(other, NAME, {**LABELS, "orch-stack": "0" * 16})
    assert refused.value.fault is Fault.CONFLICT
    assert bed.is_running(other)
    assert [image.labels for image in bed.provider.images({})] == [LABELS]


def test_deleted_is_gone_and_deleting_again_is_fine(bed: Bed) -> None:
    image = baked(bed, running(bed))
    bed.provider.delete_image(image)
    bed.provider.delete_image(image)
    assert not bed.provider.images({})
    with pytest.raises(ProviderError) as refused:
        bed.provider.create(replace(spec(bed), image=image.reference))
    assert refused.value.fault is Fault.INVALID


def test_no_image_of_a_machine_that_is_gone(bed: Bed) -> None:
    machine = running(bed)
    bed.provider.delete(machine)
    bed.await_that(lambda: bed.provider.find(machine) is None)
    with pytest.raises(ProviderError) as refused:
        bed.provider.bake(machine, NAME, LABELS)
    assert refused.value.fault is Fault.INVALID
    assert not bed.provider.images({})


@pytest.mark.parametrize("name", ["", "ab", "Upper", "ends-", "a" * 64, "../x", "a b", "1st"])
def test_a_bad_name_is_refused(bed: Bed, name: str) -> None:
    machine = bed.provider.create(spec(bed))
    with pytest.raises(ProviderError) as refused:
        bed.provider.bake(machine, name, LABELS)
    assert refused.value.fault is Fault.INVALID
    assert not bed.provider.images({})
