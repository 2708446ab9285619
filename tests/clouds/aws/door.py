"""Where every request comes in: it is recorded, judged, failed by script, and answered here or by moto.

POST /_test/faults      [fault, ...]  (see faults.Fault); GET lists those to come; DELETE forgets them
POST /_test/settings    {name: value} (see settings.Settings)
GET  /_test/state       {"requests": [...], "instances": [...], "faults": [...]}
GET  /_test/instances   the instances as the cloud knows them, hidden ones too
DELETE /_test/requests  forget the requests so far
POST /_test/interrupt   {"instance": "i-...", "notice_s": 120}: a spot interruption
POST /_test/rebalance   {"instance": "i-..."}: a rebalance recommendation
POST /_test/freeze      {"instance": "i-..."}: its guest hangs
POST /_test/kill        {"instance": "i-..."}: its machine dies, as by a failing host
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from moto.ec2.models import ec2_backends

from tests.clouds.aws import access, alarms, dryrun, goods, peers, placement, services, signed
from tests.clouds.aws.faults import MESSAGES, SCRIPT, STATUS, Fault
from tests.clouds.aws.life import LIVES
from tests.clouds.aws.requests import Request, Response, as_json, error, read
from tests.clouds.aws.settings import ACCOUNT, SETTINGS

_GROUP_CHANGES = ("AuthorizeSecurityGroupIngress", "RevokeSecurityGroupIngress", "ModifyInstanceAttribute")
_KEPT_HEADERS = ("if-none-match", "if-match", "x-amz-checksum-crc32", "content-md5", "user-agent")
_LOG_LIMIT = 20_000
_ANNOUNCED = "4096"
"""The length of an answer that breaks off before."""

Start = Callable[..., Any]


class Door:
    """A WSGI application around moto's."""

    def __init__(self, moto: Callable[[dict[str, Any], Start], Iterable[bytes]]) -> None:
        self._moto = moto
        self._lock = threading.Lock()
        self._whole = threading.Lock()
        """Held by a request to S3, whose conditions moto checks some time before it writes."""
        self._log: list[dict[str, Any]] = []
        self._furnished: set[tuple[str, str]] = set()

    def __call__(self, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        if str(environ.get("PATH_INFO", "")).startswith("/_test/"):
            response = self._control(environ, body)
        else:
            response = self._serve(environ, body)
        start(_line(response.status), list(response.headers))
        if ("Content-Length", _ANNOUNCED) in response.headers:
            return _broken_off(environ, response.body)
        return [response.body]

    # ------------------------------------------------------------ the cloud

    def _serve(self, environ: dict[str, Any], body: bytes) -> Response:
        begun = time.time()
        try:
            request = read(environ, body)
        except ValueError as problem:
            return Response(400, (("Content-Type", "text/plain"),), str(problem).encode())
        facts = _facts(request)
        fault = SCRIPT.take(facts, request.parameters)
        if fault is not None and fault.delay_s:
            time.sleep(fault.delay_s)
        if fault is None or fault.after or not fault.replaces:
            response = self._answer(request, environ)
        else:
            response = _failed(request, fault, facts)
        scripted = fault is not None and fault.after
        if scripted and fault is not None and fault.replaces and not fault.drop:
            response = _failed(request, fault, facts)
        self._record(request, facts, response, fault, begun)
        if fault is not None and fault.drop:
            _hang_up(environ)
        return response

    def _answer(self, request: Request, environ: dict[str, Any]) -> Response:
        for judge in (
            access.refusal,
            signed.refusal,
            services.bad_digest,
            access.answer,
            services.answer,
            alarms.answer,
            placement.answer,
            dryrun.answer,
        ):
            found = judge(request)
            if found is not None:
                return found
        if request.service == "ec2":
            self._furnish(request.region)
        with self._whole if request.service == "s3" else contextlib.nullcontext():
            response = self._of_moto(request, environ)
        if request.action in _GROUP_CHANGES and response.status == 200:
            LIVES.check_reach()
        if request.action in peers.CHANGES and response.status == 200:
            peers.connect()
        return response

    def _furnish(self, region: str) -> None:
        """What an account has in each region before anybody asks."""
        with self._lock:
            for name in SETTINGS.groups:
                if (region, name) not in self._furnished:
                    self._furnished.add((region, name))
                    goods.open_group(region, name)

    def _of_moto(self, request: Request, environ: dict[str, Any]) -> Response:
        captured: list[tuple[str, list[tuple[str, str]]]] = []

        def start(status: str, headers: list[tuple[str, str]], *_: object) -> None:
            captured.append((status, headers))

        environ = {**environ, "wsgi.input": io.BytesIO(request.body)}
        try:
            parts = self._moto(environ, start)
            body = b"".join(parts)
            with contextlib.suppress(AttributeError):
                parts.close()  # type: ignore[attr-defined]
        except NotImplementedError as absent:
            return error(request, 400, "NotInThisTestCloud", f"{request.action}: {absent}")
        except Exception as failure:
            traceback.print_exc()
            return error(request, 400, "TestCloudFailed", f"{request.action}: {failure!r}")
        status, headers = int(captured[0][0].split()[0]), captured[0][1]
        return _as_aws_sends(Response(status, tuple(headers), body))

    def _record(
        self,
        request: Request,
        facts: Mapping[str, str],
        response: Response,
        fault: Fault | None,
        begun: float,
    ) -> None:
        with self._lock:
            self._log.append(
                {
                    "at": begun,
                    "took": time.time() - begun,
                    **facts,
                    "method": request.method,
                    "path": request.path,
                    "parameters": dict(request.parameters),
                    "headers": {
                        name: request.headers[name] for name in _KEPT_HEADERS if name in request.headers
                    },
                    "status": response.status,
                    "code": _code(response),
                    "scripted": fault is not None,
                }
            )
            del self._log[:-_LOG_LIMIT]

    # ------------------------------------------------------------ its control

    def _control(self, environ: Mapping[str, Any], body: bytes) -> Response:
        what = environ["REQUEST_METHOD"], str(environ["PATH_INFO"]).removeprefix("/_test/").strip("/")
        try:
            return as_json(self._controlled(what, json.loads(body or b"null")))
        except (ValueError, KeyError, TypeError) as problem:
            return as_json({"error": f"{type(problem).__name__}: {problem}"}, 400)

    def _controlled(self, what: tuple[str, str], value: Any) -> Any:
        if what == ("POST", "faults"):
            SCRIPT.add([Fault.parse(item) for item in (value if isinstance(value, list) else [value])])
        elif what == ("DELETE", "faults"):
            SCRIPT.clear()
        elif what == ("DELETE", "requests"):
            with self._lock:
                self._log.clear()
        elif what == ("POST", "settings"):
            SETTINGS.change(value)
        elif what == ("POST", "interrupt"):
            LIVES.interrupt(_known(value), float(value.get("notice_s", 120)))
        elif what == ("POST", "rebalance"):
            _known(value).metadata.rebalance_at = time.time()
        elif what == ("POST", "kill"):
            LIVES.terminate(_known(value), "Server.InternalError", "The host failed")
        elif what == ("POST", "freeze"):
            LIVES.freeze(_known(value))
        elif what == ("GET", "instances"):
            return [life.as_json() for life in LIVES.all()]
        elif what not in (("GET", "state"), ("GET", "faults")):
            raise ValueError(f"no such control: {' '.join(what)}")
        if what == ("GET", "state"):
            with self._lock:
                requests = list(self._log)
            return {
                "requests": requests,
                "instances": [life.as_json() for life in LIVES.all()],
                "faults": SCRIPT.as_json(),
            }
        return SCRIPT.as_json()


def _known(value: Mapping[str, Any]) -> Any:
    life = LIVES.get(value["instance"])
    if life is None:
        raise ValueError(f"no instance {value['instance']}")
    return life


def _facts(request: Request) -> dict[str, str]:
    form = request.parameters
    return {
        "service": request.service,
        "action": request.action,
        "region": request.region,
        "instance_type": form.get("InstanceType", "") if request.action == "RunInstances" else "",
        "zone": _zone(request) if request.action == "RunInstances" else "",
    }


def _zone(request: Request) -> str:
    form = request.parameters
    named = form.get("Placement.AvailabilityZone")
    subnet = form.get("SubnetId") or form.get("NetworkInterface.1.SubnetId")
    if named or not subnet:
        return named or ""
    for subnets in ec2_backends[ACCOUNT][request.region].subnets.values():
        if subnet in subnets:
            return str(subnets[subnet].availability_zone)
    return ""


def _failed(request: Request, fault: Fault, facts: Mapping[str, str]) -> Response:
    if fault.blank or fault.partial:
        length = (("Content-Length", _ANNOUNCED),) if fault.partial else ()
        body = b'<?xml version="1.0" encoding="UTF-8"?>\n' if fault.partial else b""
        return Response(fault.status or 200, (("Content-Type", "text/xml"), *length), body)
    if fault.body:
        return Response(fault.status or 200, (("Content-Type", fault.content_type),), fault.body.encode())
    text = fault.message or MESSAGES.get(fault.code, f"{fault.code} by script")
    if fault.code == "UnauthorizedOperation" and not fault.message:
        who = f"User: {access.ARN} is not authorized to perform: "
        text = f"You are not authorized to perform this operation. {who}"
        action = f"{request.service}:{request.action}"
        text += f"{action}. Encoded authorization failure message: {access.encoded(action)}"
    for name, value in {"type": facts["instance_type"], "zone": facts["zone"], "limit": "0"}.items():
        text = text.replace(f"{{{name}}}", value)
    return error(request, fault.http_status, fault.code, text)


def _as_aws_sends(response: Response) -> Response:
    """moto sends every EC2 error as 400."""
    code = _code(response)
    if response.status == 400 and code in STATUS and b"<Errors>" in response.body:
        return Response(STATUS[code], response.headers, response.body)
    return response


def _code(response: Response) -> str:
    if response.status < 400:
        return ""
    found = re.search(rb"<Code>([^<]+)</Code>|\"__type\": ?\"([^\"]+)\"", response.body[:4096])
    return next((part.decode() for part in found.groups() if part), "") if found else ""


def _hang_up(environ: Mapping[str, Any]) -> None:
    connection = environ.get("werkzeug.socket")
    if connection is not None:
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
    raise ConnectionResetError("dropped by script")


def _broken_off(environ: Mapping[str, Any], beginning: bytes) -> Iterator[bytes]:
    yield beginning
    _hang_up(environ)


def _line(status: int) -> str:
    return f"{status} {'OK' if status < 400 else 'Error'}"
