"""Operations: PENDING, RUNNING, DONE; carried out by a thread each, whether or not anybody waits."""

from __future__ import annotations

import secrets
import threading
import time
import traceback
import uuid
from collections.abc import Callable

from tests.clouds.gcp.errors import ApiError, Json, OperationError, not_found
from tests.clouds.gcp.world import World, timestamp

LONGEST_WAIT_S = 120.0
PROJECT = ""
"""In place of a zone: an operation on what belongs to the project as a whole."""
Effect = Callable[[], None]


def check_request_id(request_id: str) -> None:
    try:
        parsed = uuid.UUID(request_id)
        sound = str(parsed) == request_id.lower() and parsed.int != 0
    except ValueError:
        sound = False
    if not sound:
        message = f"Invalid value for field 'requestId': '{request_id}'. Must be a valid UUID, not zero."
        raise ApiError(400, "invalid", message)


def repeated(world: World, method: str, request_id: str) -> Json | None:
    """The operation that this request id has begun already."""
    if not request_id:
        return None
    check_request_id(request_id)
    name = world.by_request.get((method, request_id))
    return world.operations[name] if name else None


def begin(
    world: World,
    kind: str,
    zone: str,
    target: tuple[str, str],
    effect: Effect,
    *,
    request: tuple[str, str] = ("", ""),
) -> Json:
    """Accept an operation on `target` (path below the project, id) in a zone, a region or PROJECT, and carry
    it out.

    `request` is the method and the client's request id.
    """
    now = int(time.time() * 1000)
    name = f"operation-{now}-{secrets.token_hex(6)}-{secrets.token_hex(4)}-{secrets.token_hex(4)}"
    operation: Json = {
        "kind": "compute#operation",
        "id": world.new_id(),
        "name": name,
        **({_scope(zone)[0][:-1]: world.url(*_scope(zone))} if zone else {}),
        "operationType": kind,
        "targetLink": world.url(target[0]),
        "targetId": target[1],
        "status": "PENDING",
        "user": "tester@example.com",
        "progress": 0,
        "insertTime": timestamp(),
        "selfLink": world.url(*_scope(zone), "operations", name),
    }
    if request[1]:
        operation["clientOperationId"] = request[1]
        world.by_request[request] = name
    with world.change():
        world.operations[name] = operation
    threading.Thread(target=_carry_out, args=(world, operation, effect), daemon=True, name=name).start()
    return operation


def done(world: World, kind: str, zone: str, target: tuple[str, str], message: str) -> None:
    """Write down something that the cloud itself did: a preemption, for one."""
    operation = begin(world, kind, zone, target, lambda: None)
    with world.change():
        operation["user"] = "system"
        operation["statusMessage"] = message


def _carry_out(world: World, operation: Json, effect: Effect) -> None:
    world.stopping.wait(world.settings.accept_s)
    with world.change():
        operation.update(status="RUNNING", startTime=timestamp())
    least = time.monotonic() + world.settings.work_s
    failure: OperationError | None = None
    try:
        effect()
    except OperationError as error:
        failure = error
    except Exception as error:
        traceback.print_exc()
        failure = OperationError(
            "INTERNAL_ERROR", f"The emulator failed: {error!r}", (500, "INTERNAL SERVER ERROR")
        )
    world.stopping.wait(max(0.0, least - time.monotonic()))
    with world.change():
        if failure is not None:
            one: Json = {"code": failure.code, "message": failure.message}
            if failure.details:
                one["errorDetails"] = failure.details
            operation["error"] = {"errors": [one]}
            operation["httpErrorStatusCode"], operation["httpErrorMessage"] = failure.http
        operation.update(status="DONE", progress=100, endTime=timestamp())


def find(world: World, zone: str, name: str) -> Json:
    with world.changed:
        for operation in world.operations.values():
            if name in (operation["name"], operation["id"]) and is_of(operation, zone):
                return dict(operation)
    raise not_found(world.path(*_scope(zone), "operations", name))


def is_of(operation: Json, zone: str) -> bool:
    return str(operation.get("zone") or operation.get("region") or PROJECT).rpartition("/")[2] == zone


def _scope(place: str) -> tuple[str, ...]:
    if not place:
        return ("global",)
    return ("zones" if len(place.rpartition("-")[2]) == 1 else "regions", place)


def wait(world: World, zone: str, name: str) -> Json:
    """The operation once it is done, or as it is after two minutes."""
    end = time.monotonic() + LONGEST_WAIT_S
    with world.changed:
        while find(world, zone, name)["status"] != "DONE" and time.monotonic() < end:
            if not world.changed.wait(min(1.0, end - time.monotonic())) and world.stopping.is_set():
                break
        return find(world, zone, name)
