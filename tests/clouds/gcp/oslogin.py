"""The OS Login API, v1: login profiles of the callers, and what guests are told of them.

discovery: oslogin.googleapis.com/$discovery/rest?version=v1. A user is an address; the account's name is the
address with everything but letters and digits turned into underscores.
"""

from __future__ import annotations

import hashlib
import re
import time

from werkzeug.wrappers import Request

from tests.clouds.gcp.errors import ApiError, Json, invalid
from tests.clouds.gcp.http import body_of
from tests.clouds.gcp.world import World

_PATH = re.compile(
    r"/v1/users/([^/:@]+@[^/:]+)(?:(:importSshPublicKey)|/loginProfile|/sshPublicKeys/([^/]+))"
)
_LONGEST_NAME = 32


def answer(world: World, request: Request) -> Json:
    found = _PATH.fullmatch(request.path)
    if found is None:
        raise ApiError(404, "notFound", f"The requested URL {request.path} was not found on this server.")
    address, imports, fingerprint = found.groups()
    if imports and request.method == "POST":
        _import(world, address, body_of(request))
        return {"loginProfile": _profile(world, address), "details": ""}
    if fingerprint and request.method == "DELETE":
        with world.change():
            if world.login_keys.get(address, {}).pop(fingerprint, None) is None:
                raise ApiError(404, "notFound", "Requested entity was not found.")
        return {}
    if not fingerprint and request.method == "GET":
        return _profile(world, address)
    raise ApiError(404, "notFound", f"{request.method} {request.path} is no method of OS Login.")


def for_guest(world: World) -> Json:
    """What the metadata server tells a guest of who may log in, and whether with sudo."""
    denied = world.settings.denied
    admin = "compute.instances.osAdminLogin" not in denied
    if not admin and "compute.instances.osLogin" in denied:
        return {"users": [], "admin": False}
    return {"users": [_profile(world, address) for address in world.login_keys], "admin": admin}


def _import(world: World, address: str, body: Json) -> None:
    key, expires = str(body.get("key", "")), str(body.get("expirationTimeUsec", "0"))
    if not re.fullmatch(r"ssh-[a-z0-9-]+ [A-Za-z0-9+/=]+( .*)?", key):
        raise invalid("key", key, "The key is no ssh public key.")
    if not expires.isdigit() or (expires != "0" and int(expires) < time.time() * 1e6):
        raise invalid("expirationTimeUsec", expires, "The time is over.")
    mark = hashlib.sha256(key.encode()).hexdigest()
    kept = {"key": key, "expirationTimeUsec": expires, "fingerprint": mark}
    with world.change():
        world.login_keys.setdefault(address, {})[mark] = {
            **kept,
            "name": f"users/{address}/sshPublicKeys/{mark}",
        }


def _profile(world: World, address: str) -> Json:
    user = re.sub(r"[^a-z0-9]", "_", address.lower())[:_LONGEST_NAME]
    number = str(2_000_000_000 + sum(map(ord, address)))
    account = {
        "primary": True,
        "username": user,
        "uid": number,
        "gid": number,
        "homeDirectory": f"/home/{user}",
        "shell": "/bin/bash",
        "operatingSystemType": "LINUX",
        "accountId": world.settings.project,
        "name": f"users/{address}/projects/{world.settings.project}",
    }
    with world.changed:
        keys = dict(world.login_keys.get(address, {}))
    return {"name": address, "posixAccounts": [account], "sshPublicKeys": keys}
