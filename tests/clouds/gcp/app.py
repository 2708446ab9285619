"""The HTTP face of the emulated cloud: one WSGI application for Compute Engine, Storage and /_test/."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Request, Response

from tests.clouds.gcp import billing, control, discovery, governing, oslogin, permissions
from tests.clouds.gcp.call import Call, refuse_unknown_project
from tests.clouds.gcp.calls import CALLS
from tests.clouds.gcp.errors import ApiError, Json
from tests.clouds.gcp.faults import OPERATION_KINDS, Place
from tests.clouds.gcp.http import (
    Broken,
    Instead,
    after_effect,
    before_effect,
    body_of,
    break_connection,
    json_response,
)
from tests.clouds.gcp.lifecycle import Lifecycle
from tests.clouds.gcp.listing import select
from tests.clouds.gcp.storage import Storage
from tests.clouds.gcp.world import World

Start = Callable[..., Any]


class App:
    def __init__(self, world: World, life: Lifecycle) -> None:
        self._world = world
        self._life = life
        self._document = discovery.compute()
        self._storage = Storage(world)

    def __call__(self, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        request = Request(environ)
        try:
            return _guarded(environ, self._answer(request)(environ, start))
        except Broken:
            break_connection(environ)
            raise

    def _answer(self, request: Request) -> Response:
        request.get_data(cache=True)  # whatever comes of it: the next request on this connection follows
        record: Json = {"at": time.time(), "verb": request.method, "path": request.path}
        record["query"] = request.args.to_dict()
        try:
            answer = self._dispatch(request, record)
        except ApiError as error:
            answer = (
                Response(status=304) if error.status == 304 else json_response(error.body(), error.status)
            )
            record["error"] = error.reason
        except Instead as other:
            answer = other.response
        except Broken:
            record["status"] = 0
            self._note(record)
            raise
        record["status"] = answer.status_code
        self._note(record)
        return answer

    def _note(self, record: Json) -> None:
        record["took"] = time.time() - record["at"]
        if not record["path"].startswith("/_test/"):
            with self._world.changed:
                self._world.requests.append(record)

    def _dispatch(self, request: Request, record: Json) -> Response:
        if request.path.startswith("/_test/"):
            return json_response(control.answer(self._world, self._life, request))
        if request.path.startswith("/compute/v1/"):
            governing.require_enabled(self._world, "compute.googleapis.com")
            return self._compute(request, record)
        if request.path.startswith("/v1/"):
            governing.require_payer(self._world, request)
        if "/services/" in request.path and request.path.startswith("/v1/projects/"):
            return json_response(governing.service(self._world, request.path, request.method))
        if request.path.startswith("/v1/users/"):
            governing.require_enabled(self._world, "oslogin.googleapis.com")
            record.update(method="oslogin", body=body_of(request) if request.method == "POST" else {})
            return json_response(oslogin.answer(self._world, request))
        if request.path == "/token":
            return json_response({"access_token": "emulated", "expires_in": 3600, "token_type": "Bearer"})
        if self._storage.serves(request):
            return self._storage.answer(request, record)
        if request.path == f"/v1/{billing.SERVICE}/skus":
            record.update(method="cloudbilling.services.skus.list")
            before_effect(self._world.faults.take(record["method"], None), Place("", "", billing.SERVICE))
            return json_response(billing.skus(request.args.to_dict()))
        if request.path.endswith((":testIamPermissions", ":getEffectiveOrgPolicy")):
            governing.require_enabled(self._world, "cloudresourcemanager.googleapis.com")
        if request.path.endswith(":testIamPermissions"):
            return self._test_permissions(request, record)
        if request.path.endswith(":getEffectiveOrgPolicy"):
            record.update(method="cloudresourcemanager.projects.getEffectiveOrgPolicy")
            return json_response(governing.effective_policy(self._world, body_of(request)))
        raise ApiError(404, "notFound", f"The requested URL {request.path} was not found on this server.")

    # ------------------------------------------------------------ Compute Engine

    def _compute(self, request: Request, record: Json) -> Response:
        name, path = self._matched(request)
        method = self._document.methods[name]
        query = request.args.to_dict(flat=False)
        self._document.check_path(method, path)
        self._document.check_query(method, query)
        body = body_of(request) if method.request else {}
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
        body = body_of(request)
        record.update(method="cloudresourcemanager.projects.testIamPermissions", body=body)
        if project != self._world.settings.project:
            raise ApiError(403, "forbidden", "The caller does not have permission")
        fault = self._world.faults.take(record["method"], None)
        before_effect(fault, Place(project, "", f"projects/{project}"))
        return json_response(permissions.granted(self._world, body))


def _guarded(environ: dict[str, Any], answer: Iterable[bytes]) -> Iterator[bytes]:
    """The answer's body, which may break in its middle."""
    try:
        yield from answer
    except Broken:
        break_connection(environ)
        raise
