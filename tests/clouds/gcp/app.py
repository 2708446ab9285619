"""The HTTP face of the emulated cloud: one WSGI application for Compute Engine, Storage and /_test/."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Callable, Iterable
from typing import Any

from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Request, Response

from tests.clouds.gcp import control, discovery, permissions
from tests.clouds.gcp.calls import CALLS, Call, refuse_unknown_project
from tests.clouds.gcp.errors import ApiError, Json
from tests.clouds.gcp.faults import HTTP_KINDS, OPERATION_KINDS, Fault, Place
from tests.clouds.gcp.lifecycle import Lifecycle
from tests.clouds.gcp.listing import select
from tests.clouds.gcp.world import World

Start = Callable[..., Any]


class Broken(Exception):
    """The connection is to break without an answer."""


class App:
    def __init__(self, world: World, life: Lifecycle) -> None:
        self._world = world
        self._life = life
        self._document = discovery.compute()

    def __call__(self, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        request = Request(environ)
        try:
            return self._answer(request)(environ, start)
        except Broken:
            _break(environ)
            return []

    def _answer(self, request: Request) -> Response:
        request.get_data(cache=True)  # whatever comes of it: the next request on this connection follows
        record: Json = {"at": time.time(), "verb": request.method, "path": request.path}
        record["query"] = request.args.to_dict()
        try:
            answer = self._dispatch(request, record)
        except ApiError as error:
            answer = _json(error.body(), error.status)
            record["error"] = error.reason
        except Broken:
            record["status"] = 0
            self._note(record)
            raise
        record["status"] = answer.status_code
        self._note(record)
        return answer

    def _note(self, record: Json) -> None:
        if not record["path"].startswith("/_test/"):
            with self._world.changed:
                self._world.requests.append(record)

    def _dispatch(self, request: Request, record: Json) -> Response:
        if request.path.startswith("/_test/"):
            return _json(control.answer(self._world, self._life, request))
        if request.path.startswith("/compute/v1/"):
            return self._compute(request, record)
        if request.path.endswith(":testIamPermissions"):
            return self._test_permissions(request, record)
        raise ApiError(404, "notFound", f"The requested URL {request.path} was not found on this server.")

    # ------------------------------------------------------------ Compute Engine

    def _compute(self, request: Request, record: Json) -> Response:
        name, path = self._matched(request)
        method = self._document.methods[name]
        query = request.args.to_dict(flat=False)
        self._document.check_path(method, path)
        self._document.check_query(method, query)
        body = _body(request) if method.request else {}
        record.update(method=name, body=body, zone=path.get("zone"))
        if method.request:
            self._document.check_body(method, body)
        if name not in CALLS:
            raise ApiError(501, "notImplemented", f"The method {name} is real, but it is not emulated.")
        fault = self._world.faults.take(name, path.get("zone"))
        place = Place(
            self._world.settings.project, path.get("zone", ""), "/".join(request.path.split("/")[3:])
        )
        before_effect(fault, place)
        flat = {key: values[0] for key, values in query.items()}
        later = fault if fault is not None and fault.kind in OPERATION_KINDS else None
        call = Call(self._world, self._life, name, path, flat, body, later)
        refuse_unknown_project(call)
        permissions.require(self._world, name, path, body)
        found = CALLS[name](call)
        with self._world.changed:
            text = json.dumps(select(found, flat["fields"]) if "fields" in flat else found)
        after_effect(fault, place)
        return Response(text, 200, content_type="application/json; charset=UTF-8")

    def _matched(self, request: Request) -> tuple[str, dict[str, str]]:
        adapter = self._document.routes.bind("localhost")
        try:
            name, path = adapter.match(request.path, method=request.method)
        except HTTPException as error:
            text = f"The requested URL {request.path} was not found on this server."
            raise ApiError(404, "notFound", text) from error
        return str(name), dict(path)

    def _test_permissions(self, request: Request, record: Json) -> Response:
        project = request.path.rpartition("/")[2].partition(":")[0]
        body = _body(request)
        record.update(method="cloudresourcemanager.projects.testIamPermissions", body=body)
        if project != self._world.settings.project:
            raise ApiError(403, "forbidden", "The caller does not have permission")
        fault = self._world.faults.take(record["method"], None)
        before_effect(fault, Place(project, "", f"projects/{project}"))
        return _json(permissions.granted(self._world, body))


def before_effect(fault: Fault | None, place: Place) -> None:
    """Strike with what keeps a call from being carried out."""
    if fault is None:
        return
    if fault.kind == "slow" and not fault.after_effect:
        time.sleep(fault.delay_s)
    if fault.after_effect:
        return
    if fault.kind in HTTP_KINDS:
        raise HTTP_KINDS[fault.kind](fault, place)
    if fault.kind == "reset":
        raise Broken


def after_effect(fault: Fault | None, place: Place) -> None:
    """Strike with what keeps the answer of a call that was carried out from arriving."""
    if fault is None or not fault.after_effect:
        return
    if fault.kind == "slow":
        time.sleep(fault.delay_s)
    if fault.kind in HTTP_KINDS:
        raise HTTP_KINDS[fault.kind](fault, place)
    if fault.kind == "reset":
        raise Broken


def _body(request: Request) -> Any:
    text = request.get_data(as_text=True)
    if not text:
        return {}
    if request.mimetype != "application/json":
        raise ApiError(400, "parseError", f"This API does not support parsing {request.mimetype!r} input.")
    try:
        return json.loads(text)
    except ValueError:
        raise ApiError(400, "parseError", "Invalid JSON payload received. Parse Error.") from None


def _json(value: object, status: int = 200) -> Response:
    return Response(json.dumps(value, default=str), status, content_type="application/json; charset=UTF-8")


def _break(environ: dict[str, Any]) -> None:
    """Reset the connection: the client sees ECONNRESET, as after a lost network."""
    connection: socket.socket = environ["werkzeug.socket"]
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
    raise ConnectionResetError
