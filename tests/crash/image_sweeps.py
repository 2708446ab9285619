"""Kill `image bake` and `image delete`: one image in the end, or none, and never a machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from tests.crash.kill import Kill, Points, points_of, seen
from tests.crash.rig import Rig

NO_IMAGE = 2
"""The exit code of a deletion that finds no image with that name."""


def _baked(rig: Rig, name: str) -> int:
    """The effects of making an image and of deleting it."""
    return rig.do("bake_image", profile="orch.yaml", name=name).count


def _effects_of_bake(rig: Rig) -> int:
    """Of the second one, as of `up`."""
    for name in ("orch-first", "orch-counted"):
        count = _baked(rig, name)
        rig.do("delete_image", name=name)
    return count


def _sweep_bake(rig: Rig, wanted: Points) -> Iterator[Kill]:
    for number, point in enumerate(points_of(wanted, lambda: _effects_of_bake(rig))):
        name = f"orch-baked-{number}"
        killed = rig.call("bake_image", profile="orch.yaml", name=name, kill_before=point)
        again = rig.call("bake_image", profile="orch.yaml", name=name)
        wrong = again.error or _not_one(rig, name)
        machines = len(rig.cloud.alive())
        if machines:
            wrong = wrong or "the machine of the image is still there"
        wrong = wrong or _deleted(rig, name)
        yield seen(rig, "image bake", point, killed, wrong, machines)


def _sweep_given_up(rig: Rig, wanted: Points) -> Iterator[Kill]:
    """The bake is killed, and nobody repeats it: `down`, and `image delete`."""
    for number, point in enumerate(points_of(wanted, lambda: _effects_of_bake(rig))):
        name = f"orch-given-up-{number}"
        killed = rig.call("bake_image", profile="orch.yaml", name=name, kill_before=point)
        rig.call("down", discard=True)
        yield seen(rig, "image bake, only down", point, killed, _deleted(rig, name, may_lack=True), 0)


def _sweep_delete(rig: Rig, wanted: Points) -> Iterator[Kill]:
    def counted() -> int:
        _baked(rig, "orch-counted")
        return rig.do("delete_image", name="orch-counted").count

    for number, point in enumerate(points_of(wanted, counted)):
        name = f"orch-deleted-{number}"
        _baked(rig, name)
        killed = rig.call("delete_image", name=name, kill_before=point)
        yield seen(rig, "image delete", point, killed, _deleted(rig, name, may_lack=True), 0)


def _not_one(rig: Rig, name: str) -> str:
    """What is wrong with the images that are listed; "" if there is one, which can be booted."""
    listed = str(rig.do("list_images").value)
    sound = listed.count("MachineImage(") == 1 and f"name='{name}'" in listed and "AVAILABLE" in listed
    return "" if sound else listed


def _deleted(rig: Rig, name: str, *, may_lack: bool = False) -> str:
    """Delete the image; return the error, "" without one."""
    done = rig.call("delete_image", name=name)
    return "" if may_lack and done.exit_code == NO_IMAGE else done.error or ""


IMAGE_SWEEPS: Mapping[str, Callable[[Rig, Points], Iterator[Kill]]] = {
    "image bake": _sweep_bake,
    "image bake, only down": _sweep_given_up,
    "image delete": _sweep_delete,
}
