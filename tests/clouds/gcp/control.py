"""What a test tells and asks the emulated cloud, under /_test/.

POST   /_test/faults            one fault or a list of them: see faults.py
GET    /_test/faults            those to come
DELETE /_test/faults
GET    /_test/state             requests seen (with bodies), what there is, operations, faults, settings
POST   /_test/settings          any of world.Settings, from now on
POST   /_test/instances/NAME/preempt  {"notice_s": 30}: Spot only
POST   /_test/instances/NAME/{kill,freeze,thaw,partition,heal,fill_disk,free_disk}
"""

from __future__ import annotations

import copy
import time
from dataclasses import asdict, fields
from typing import Any

from werkzeug.wrappers import Request

from tests.clouds.gcp.errors import ApiError, Json
from tests.clouds.gcp.faults import Fault
from tests.clouds.gcp.lifecycle import Lifecycle
from tests.clouds.gcp.machines import Running
from tests.clouds.gcp.world import Instance, Settings, World

MACHINE_FAULTS = ("kill", "freeze", "thaw", "partition", "heal", "fill_disk", "free_disk")


def answer(world: World, life: Lifecycle, request: Request) -> object:
    """The answer to one request under /_test/."""
    parts = request.path.split("/")[2:]
    body: Any = request.get_json(silent=True) or {}
    match (request.method, parts):
        case ("POST", ["faults"]):
            _script(world, body)
            return _faults(world)
        case ("GET", ["faults"]):
            return _faults(world)
        case ("DELETE", ["faults"]):
            world.faults.clear()
            return []
        case ("GET", ["state"]):
            return state(world)
        case ("POST", ["settings"]):
            _set(world, body)
            return asdict(world.settings)
        case ("POST", ["instances", name, "preempt"]):
            life.preempt(_named(world, name), float(body.get("notice_s", 30)))
            return {}
        case ("POST", ["instances", name, what]) if what in MACHINE_FAULTS:
            instance = _named(world, name)
            if not isinstance(instance.machine, Running):
                raise ApiError(400, "badRequest", f"{name} has no machine.")
            getattr(life.machines.local, what)(instance.machine.machine)
            return {}
    raise ApiError(404, "notFound", f"{request.method} {request.path} is nothing that a test can ask.")


def state(world: World) -> Json:
    with world.changed:
        return copy.deepcopy(
            {
                "at": time.time(),
                "requests": world.requests,
                "instances": [instance.shape for instance in world.instances.values()],
                "disks": list(world.disks.values()),
                "images": [{**each.shape, "files": str(each.files or "")} for each in world.images.values()],
                "operations": list(world.operations.values()),
                "faults": _faults(world),
                "placements": list(world.placements.values()),
                "login_keys": world.login_keys,
                "settings": asdict(world.settings),
            }
        )


def _script(world: World, body: Any) -> None:
    try:
        faults = [Fault(**one) for one in (body if isinstance(body, list) else [body])]
    except TypeError as error:
        raise ApiError(400, "badRequest", f"That is no fault: {error}") from error
    world.faults.add(*faults)


def _faults(world: World) -> list[Json]:
    return [asdict(fault) for fault in world.faults.coming()]


def _set(world: World, body: Json) -> None:
    known = {field.name for field in fields(Settings)}
    if not set(body) <= known:
        raise ApiError(400, "badRequest", f"No such setting: {', '.join(sorted(set(body) - known))}")
    with world.change():
        for name, value in body.items():
            setattr(world.settings, name, value)


def _named(world: World, name: str) -> Instance:
    with world.changed:
        for instance in world.instances.values():
            if instance.name == name:
                return instance
    raise ApiError(404, "notFound", f"No instance is named {name}.")
