"""Bodies, answers, and faults of the connection itself."""

from __future__ import annotations

import ctypes
import json
import socket
import time
from collections.abc import Iterator
from typing import Any

from werkzeug.wrappers import Request, Response

from tests.clouds.gcp.errors import ApiError
from tests.clouds.gcp.faults import HTTP_KINDS, Fault, Place

_JSON = "application/json; charset=UTF-8"
_BEGINNING = '{"kind": "compute#'


class Instead(Exception):
    """An answer that takes the place of the real one."""

    def __init__(self, response: Response) -> None:
        super().__init__()
        self.response = response


class Broken(ConnectionError):
    """The connection is to break without an answer, or in the middle of one."""


def body_of(request: Request) -> Any:
    """The JSON body; {} where there is none."""
    text = request.get_data(as_text=True)
    if not text:
        return {}
    if request.mimetype != "application/json":
        raise ApiError(400, "parseError", f"This API does not support parsing {request.mimetype!r} input.")
    try:
        return json.loads(text)
    except ValueError:
        raise ApiError(400, "parseError", "Invalid JSON payload received. Parse Error.") from None


def json_response(value: object, status: int = 200) -> Response:
    return Response(json.dumps(value), status, content_type=_JSON)


def before_effect(fault: Fault | None, place: Place) -> None:
    """Strike with what keeps a call from being carried out."""
    if fault is not None and not fault.after_effect:
        _strike(fault, place)


def after_effect(fault: Fault | None, place: Place) -> None:
    """Strike with what keeps the answer of a call that was carried out from arriving."""
    if fault is not None and fault.after_effect:
        _strike(fault, place)


def _strike(fault: Fault, place: Place) -> None:
    if fault.kind == "slow":
        time.sleep(fault.delay_s)
    if fault.kind in HTTP_KINDS:
        raise HTTP_KINDS[fault.kind](fault, place)
    if fault.kind == "html":
        raise Instead(
            Response("<html><body>Sign in to the network</body></html>", 200, content_type="text/html")
        )
    if fault.kind == "empty":
        raise Instead(json_response({}))
    if fault.kind == "blank":
        raise Instead(Response("", 200, content_type=_JSON))
    if fault.kind == "truncated":
        raise Instead(Response(_BEGINNING, 200, content_type=_JSON))
    if fault.kind == "partial":
        raise Instead(Response(_broken_off(), 200, {"Content-Length": "4096"}, content_type=_JSON))
    if fault.kind == "reset":
        raise Broken


def _broken_off() -> Iterator[str]:
    yield _BEGINNING
    raise Broken


def break_connection(environ: dict[str, Any]) -> None:
    """Reset it at once, whatever else still refers to the socket: the client sees ECONNRESET."""
    connection: socket.socket = environ["werkzeug.socket"]
    nowhere = bytes(16)  # an address of the family AF_UNSPEC: the kernel forgets the peer, and resets it
    ctypes.CDLL(None).connect(connection.fileno(), nowhere, len(nowhere))
