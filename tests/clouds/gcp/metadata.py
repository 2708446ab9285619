"""The metadata server of one instance, on 169.254.169.254 inside its own network."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import socket
import subprocess
import threading
import time
from typing import Any

from werkzeug.serving import WSGIRequestHandler, make_server
from werkzeug.wrappers import Request, Response

from orchestrator.providers.local.tools import tool
from tests.clouds.gcp import oslogin
from tests.clouds.gcp.world import Instance, World

ADDRESS = "169.254.169.254"
_CLONE_NEWNET = 0x40000000
_PREFIX = "/computeMetadata/v1/"


def listening_in(pid: int) -> socket.socket:
    """A socket that listens at the metadata server's address in the network of process `pid`."""
    inside = [tool("nsenter"), "--target", str(pid), "--net", tool("ip")]
    for words in (["link", "set", "lo", "up"], ["address", "add", f"{ADDRESS}/32", "dev", "lo"]):
        subprocess.run([*inside, *words], check=True, capture_output=True, text=True)
    made: list[socket.socket | OSError] = []
    thread = threading.Thread(target=_listen, args=(pid, made))  # a network belongs to one thread
    thread.start()
    thread.join()
    if isinstance(made[0], OSError):
        raise made[0]
    return made[0]


def _listen(pid: int, made: list[socket.socket | OSError]) -> None:
    try:
        network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            if ctypes.CDLL(None, use_errno=True).setns(network, _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
        finally:
            os.close(network)
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((ADDRESS, 80))
        listener.listen(64)
        made.append(listener)
    except OSError as error:
        made.append(error)


class _Handler(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log(self, *_: Any) -> None:
        pass


class MetadataServer:
    """Serves one instance until stop()."""

    def __init__(self, world: World, instance: Instance, pid: int) -> None:
        self._world = world
        self._instance = instance
        self._listener = listening_in(pid)
        app = Request.application(self._answer)
        self._server = make_server(
            ADDRESS, 80, app, threaded=True, request_handler=_Handler, fd=self._listener.fileno()
        )
        self._stopped = False
        threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True).start()

    def stop(self) -> None:
        self._stopped = True
        with self._world.change():
            pass
        self._server.shutdown()
        self._server.server_close()
        self._listener.close()

    # ------------------------------------------------------------ answers

    def _answer(self, request: Request) -> Response:
        if request.path == "/":
            return self._made("computeMetadata/\n")
        if request.headers.get("Metadata-Flavor") != "Google" or "X-Forwarded-For" in request.headers:
            return self._made("Missing Metadata-Flavor:Google header.", 403)
        if not request.path.startswith(_PREFIX):
            return self._made("Not Found", 404)
        path = request.path.removeprefix(_PREFIX)
        if path.startswith("instance/guest-attributes"):
            return self._guest_attributes(request, path.removeprefix("instance/guest-attributes").strip("/"))
        if request.method != "GET":
            return self._made("Method Not Allowed", 405)
        if path == "oslogin/users":
            return self._made(json.dumps(oslogin.for_guest(self._world)), kind="application/json")
        value, etag = self._awaited(request, path)
        if value is None:
            return self._made("Not Found", 404)
        return self._shown(value, request, etag)

    def _awaited(self, request: Request, path: str) -> tuple[Any, str]:
        """The value now, or once it has changed, if the guest asks for that."""
        wait = request.args.get("wait_for_change", "").lower() == "true"
        end = time.monotonic() + float(request.args.get("timeout_sec", "3600"))
        with self._world.changed:
            value, etag = self._value(path)
            last = request.args.get("last_etag", etag)
            while wait and etag == last and time.monotonic() < end and not self._stopped:
                self._world.changed.wait(min(1.0, max(0.0, end - time.monotonic())))
                value, etag = self._value(path)
        return value, etag

    def _value(self, path: str) -> tuple[Any, str]:
        value: Any = {"instance": self._tree(), "project": self._project()}
        for name in filter(None, path.split("/")):
            if isinstance(value, list) and name.isdigit() and int(name) < len(value):
                value = value[int(name)]
            elif isinstance(value, dict) and name in value:
                value = value[name]
            else:
                return None, "0"
        return value, hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]

    def _tree(self) -> dict[str, Any]:
        instance, world = self._instance, self._world
        shape = instance.shape
        number = world.settings.number
        interfaces = [
            {
                "ip": one.get("networkIP", ""),
                "access-configs": [
                    {"external-ip": config.get("natIP", ""), "type": "ONE_TO_ONE_NAT"}
                    for config in one.get("accessConfigs", [])
                ],
            }
            for one in shape["networkInterfaces"]
        ]
        scheduling = shape["scheduling"]
        return {
            "attributes": instance.metadata,
            "description": shape.get("description", ""),
            "hostname": f"{instance.name}.{instance.zone}.c.{world.settings.project}.internal",
            "id": int(shape["id"]),
            "machine-type": f"projects/{number}/machineTypes/{shape['machineType'].rpartition('/')[2]}",
            "maintenance-event": "NONE",
            "name": instance.name,
            "network-interfaces": interfaces,
            "preempted": "TRUE" if instance.ending == "preempted" else "FALSE",
            "scheduling": {
                "automatic-restart": "TRUE" if scheduling["automaticRestart"] else "FALSE",
                "on-host-maintenance": scheduling["onHostMaintenance"],
                "preemptible": "TRUE" if scheduling["preemptible"] else "FALSE",
                "provisioning-model": scheduling["provisioningModel"],
                "instance-termination-action": scheduling.get("instanceTerminationAction", ""),
            },
            "service-accounts": {
                name: {"email": account["email"], "scopes": account["scopes"]}
                for account in shape.get("serviceAccounts", [])
                for name in ("default", account["email"])
            },
            "tags": shape["tags"].get("items", []),
            "zone": f"projects/{number}/zones/{instance.zone}",
        }

    def _project(self) -> dict[str, Any]:
        settings = self._world.settings
        return {"project-id": settings.project, "numeric-project-id": settings.number, "attributes": {}}

    def _shown(self, value: Any, request: Request, etag: str) -> Response:
        recursive = request.args.get("recursive", "false").lower() != "false"
        if request.args.get("alt") == "json" or (recursive and isinstance(value, dict | list)):
            return self._made(json.dumps(value), etag=etag, kind="application/json")
        if isinstance(value, dict | list):
            names = value if isinstance(value, dict) else {str(n): one for n, one in enumerate(value)}
            lines = [name + ("/" if isinstance(one, dict | list) else "") for name, one in names.items()]
            return self._made("\n".join(lines) + "\n", etag=etag)
        return self._made(str(value), etag=etag)

    def _guest_attributes(self, request: Request, key: str) -> Response:
        """Namespace and key, written by the guest itself, where the metadata allow it."""
        if self._instance.metadata.get("enable-guest-attributes", "").lower() != "true":
            return self._made("Guest attributes endpoint access is disabled.", 403)
        attributes = self._instance.guest_attributes
        if request.method == "PUT":
            if key.count("/") != 1:
                return self._made("Guest attributes are namespace/key.", 400)
            with self._world.change():
                attributes[key] = request.get_data(as_text=True)
            return self._made("")
        with self._world.change():
            if request.method == "DELETE":
                attributes.pop(key, None)
                return self._made("")
            if key in attributes:
                return self._made(attributes[key])
            below = [name for name in attributes if not key or name.startswith(key + "/")]
        return self._made("\n".join(below) + "\n") if below else self._made("Not Found", 404)

    def _made(
        self, text: str, status: int = 200, *, etag: str = "", kind: str = "application/text"
    ) -> Response:
        headers = {"Metadata-Flavor": "Google", "Server": "Metadata Server for VM"}
        if etag:
            headers["ETag"] = etag
        return Response(text, status, headers, content_type=kind)
