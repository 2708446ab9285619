"""Cloud Storage's JSON API over HTTP: buckets, objects, downloads; uploads are in uploads.py."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from werkzeug.wrappers import Request, Response

from tests.clouds.gcp import discovery, signed
from tests.clouds.gcp.errors import ApiError, Json
from tests.clouds.gcp.faults import Fault, Place
from tests.clouds.gcp.http import Broken, after_effect, before_effect, body_of, json_response
from tests.clouds.gcp.listing import select, start_of, token_of
from tests.clouds.gcp.objects import Conditions, Store, Stored
from tests.clouds.gcp.uploads import Uploads
from tests.clouds.gcp.world import World

_PREFIXES = ("/storage/v1/", "/upload/storage/v1/", "/download/storage/v1/")
_MOST = 1000


@dataclass(frozen=True)
class Target:
    """What a path names: the method's id, bucket and object."""

    method: str
    bucket: str
    name: str


class Storage:
    """One project's Cloud Storage."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._document = discovery.storage()
        self.store = Store()
        self._uploads = Uploads(self.store, self._document)

    def serves(self, request: Request) -> bool:
        return request.path.startswith(_PREFIXES) or signed.is_signed(request)

    def answer(self, request: Request, record: Json) -> Response:
        if not request.path.startswith(_PREFIXES):
            settings = self._world.settings
            return signed.answer(request, self.store, settings, lambda found: _media(request, found, None))
        target = _target(request)
        record.update(method=target.method, zone=target.bucket, object=target.name)
        method = self._document.methods[target.method]
        query = request.args.to_dict()
        if "upload_id" not in query:
            self._document.check_query(method, request.args.to_dict(flat=False))
        fault = self._world.faults.take(target.method, target.bucket)
        place = Place(self._world.settings.project, target.bucket, f"{target.bucket}/{target.name}")
        before_effect(fault, place)
        answer = self._carried_out(request, target, query, fault)
        after_effect(fault, place)
        if "fields" in query and answer.mimetype == "application/json" and answer.status_code == 200:
            return json_response(select(answer.get_json(), query["fields"]))
        return answer

    def _carried_out(
        self, request: Request, target: Target, query: dict[str, str], fault: Fault | None
    ) -> Response:
        store, bucket, name = self.store, target.bucket, target.name
        match target.method:
            case "storage.buckets.insert":
                body = body_of(request)
                self._document.check("Bucket", body)
                return json_response(store.make_bucket(query["project"], body))
            case "storage.buckets.list":
                return json_response({"kind": "storage#buckets", "items": store.buckets()})
            case "storage.buckets.get":
                return json_response(store.bucket(bucket).shape)
            case "storage.buckets.delete":
                store.delete_bucket(bucket)
                return Response(status=204)
            case "storage.buckets.testIamPermissions":
                store.bucket(bucket)
                return json_response(self._permissions(request))
            case "storage.objects.list":
                return json_response(self._listed(bucket, query))
            case "storage.objects.delete":
                store.delete(bucket, name, query.get("generation"), Conditions.of(query))
                return Response(status=204)
            case "storage.objects.patch":
                changed = body_of(request)
                self._document.check("Object", changed)
                return json_response(store.patch(bucket, name, changed, Conditions.of(query)))
            case "storage.objects.get":
                found = store.get(bucket, name, query.get("generation"), Conditions.of(query))
                wants_media = query.get("alt") == "media" or request.path.startswith("/download/")
                return _media(request, found, fault) if wants_media else json_response(found.shape)
            case "storage.objects.insert":
                return self._uploads.answer(request, bucket, query, fault)
        raise ApiError(501, "notImplemented", f"The method {target.method} is real, but it is not emulated.")

    def _permissions(self, request: Request) -> Json:
        asked = request.args.getlist("permissions")
        has = [name for name in asked if name not in self._world.settings.denied]
        return {"kind": "storage#testIamPermissionsResponse", **({"permissions": has} if has else {})}

    def _listed(self, bucket: str, query: dict[str, str]) -> Json:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        items: list[Json] = []
        prefixes: list[str] = []
        for shape in self.store.list(bucket, versions=query.get("versions", "").lower() == "true"):
            name = shape["name"]
            if not name.startswith(prefix) or name < query.get("startOffset", ""):
                continue
            if "endOffset" in query and name >= query["endOffset"]:
                continue
            head, found, _ = name[len(prefix) :].partition(delimiter) if delimiter else (name, "", "")
            if not found:
                items.append(shape)
            elif prefix + head + delimiter not in prefixes:
                prefixes.append(prefix + head + delimiter)
        start, size = start_of(query.get("pageToken", "")), int(query.get("maxResults", _MOST)) or _MOST
        answer: Json = {"kind": "storage#objects"}
        if items[start : start + size]:
            answer["items"] = items[start : start + size]
        if prefixes and not start:
            answer["prefixes"] = prefixes
        if start + size < len(items):
            answer["nextPageToken"] = token_of(start + size)
        return answer


def _target(request: Request) -> Target:
    """By the raw path: an object's name may hold slashes, which clients write as %2F."""
    raw = str(request.environ.get("RAW_URI") or request.environ["REQUEST_URI"]).partition("?")[0]
    raw = re.sub(r"^https?://[^/]+", "", raw)
    prefix = next(prefix for prefix in _PREFIXES if raw.startswith(prefix))
    parts = [unquote(part) for part in raw.removeprefix(prefix).split("/")]
    shape = "/".join("?" if number % 2 else part for number, part in enumerate(parts[:4]))
    bucket = parts[1] if len(parts) > 1 else ""
    name = "/".join(parts[3:])
    if prefix.startswith("/upload/"):
        if shape == "b/?/o" and request.method in ("POST", "PUT", "DELETE"):
            return Target("storage.objects.insert", bucket, request.args.get("name", ""))
        raise ApiError(404, "notFound", "Not Found")
    found = {
        ("POST", "b"): "storage.buckets.insert",
        ("GET", "b"): "storage.buckets.list",
        ("GET", "b/?"): "storage.buckets.get",
        ("DELETE", "b/?"): "storage.buckets.delete",
        ("GET", "b/?/o"): "storage.objects.list",
        ("GET", "b/?/o/?"): "storage.objects.get",
        ("DELETE", "b/?/o/?"): "storage.objects.delete",
        ("PATCH", "b/?/o/?"): "storage.objects.patch",
        ("GET", "b/?/iam/?"): "storage.buckets.testIamPermissions",
    }.get((request.method, shape))
    if found is None:
        message = f"{request.method} {request.path} is not emulated."
        raise ApiError(501, "notImplemented", message)
    return Target(found, bucket, name)


def _media(request: Request, found: Stored, fault: Fault | None) -> Response:
    """The data or a range of them; `corrupt` and `cut` faults strike here."""
    data, whole = found.data, len(found.data)
    status, headers = 200, _media_headers(found.shape)
    asked = re.fullmatch(r"bytes=(\d*)-(\d*)", request.headers.get("Range", ""))
    if asked is not None and asked.groups() != ("", ""):
        first, last = _bounds(asked.group(1), asked.group(2), whole)
        if first >= whole:
            raise ApiError(416, "requestedRangeNotSatisfiable", "Request range not satisfiable")
        data, status = data[first : last + 1], 206
        headers["Content-Range"] = f"bytes {first}-{last}/{whole}"
    kind = fault.kind if fault is not None else ""
    if kind == "corrupt" and data:
        data = bytes([data[0] ^ 1]) + data[1:]
    headers["Content-Length"] = str(len(data))
    body: Any = _half(data) if kind == "cut" else data
    return Response(body, status, headers, content_type=found.shape["contentType"], direct_passthrough=True)


def _bounds(first: str, last: str, whole: int) -> tuple[int, int]:
    if not first:
        return max(0, whole - int(last)), whole - 1
    return int(first), min(int(last) if last else whole - 1, whole - 1)


def _half(data: bytes) -> Iterator[bytes]:
    yield data[: len(data) // 2]
    raise Broken


def _media_headers(shape: Json) -> dict[str, str]:
    return {
        "X-Goog-Hash": f"crc32c={shape['crc32c']},md5={shape['md5Hash']}",
        "X-Goog-Generation": shape["generation"],
        "X-Goog-Metageneration": shape["metageneration"],
        "X-Goog-Stored-Content-Length": shape["size"],
        "X-Goog-Stored-Content-Encoding": "identity",
        "X-Goog-Storage-Class": shape["storageClass"],
        "ETag": shape["etag"],
        "Accept-Ranges": "bytes",
    }
