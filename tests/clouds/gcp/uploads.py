"""The three ways to upload an object: media, multipart and resumable."""

from __future__ import annotations

import json
import re
import secrets
import threading
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import Message

from werkzeug.wrappers import Request, Response

from tests.clouds.gcp.discovery import Document
from tests.clouds.gcp.errors import ApiError, Json
from tests.clouds.gcp.faults import Fault
from tests.clouds.gcp.http import Broken, body_of, json_response
from tests.clouds.gcp.objects import Conditions, Store

CHUNK = 256 << 10


@dataclass
class Session:
    """A resumable upload: what has arrived, and the object once it is whole."""

    bucket: str
    name: str
    asked: Json
    conditions: Conditions
    data: bytearray = field(default_factory=bytearray)
    made: Json | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


class Uploads:
    def __init__(self, store: Store, document: Document) -> None:
        self._store = store
        self._document = document
        self._sessions: dict[str, Session] = {}

    def answer(self, request: Request, bucket: str, query: dict[str, str], fault: Fault | None) -> Response:
        kind = query.get("uploadType")
        self._store.bucket(bucket)
        if "upload_id" in query:
            return self._continued(request, query["upload_id"], fault)
        if fault is not None and fault.kind == "cut":
            raise Broken
        if request.method != "POST":
            raise ApiError(404, "notFound", "Not Found")
        if kind == "resumable":
            return self._begun(request, bucket, query)
        asked, data = self._multipart(request) if kind == "multipart" else self._plain(request, kind)
        return json_response(self._put(bucket, query, asked, data, request))

    # ------------------------------------------------------------ at once

    def _put(self, bucket: str, query: dict[str, str], asked: Json, data: bytes, request: Request) -> Json:
        name = _name(query, asked)
        return self._store.put(bucket, name, data, {**_hashes(request), **asked}, Conditions.of(query))

    def _plain(self, request: Request, kind: str | None) -> tuple[Json, bytes]:
        if kind != "media":
            raise ApiError(400, "invalid", f"Invalid upload type: {kind!r}")
        return {"contentType": request.mimetype or "application/octet-stream"}, request.get_data()

    def _multipart(self, request: Request) -> tuple[Json, bytes]:
        head = b"Content-Type: " + request.headers["Content-Type"].encode() + b"\r\n\r\n"
        parts = message_from_bytes(head + request.get_data()).get_payload()
        if not isinstance(parts, list) or len(parts) != 2:
            raise ApiError(400, "badContent", "Malformed multipart body.")
        data = _raw_part(request)
        described, second = parts
        assert isinstance(described, Message)
        assert isinstance(second, Message)
        payload = described.get_payload(decode=True)
        try:
            asked: Json = json.loads(payload if isinstance(payload, bytes) else b"")
        except ValueError:
            raise ApiError(400, "parseError", "The metadata part is no JSON.") from None
        self._document.check("Object", asked)
        asked.setdefault("contentType", second.get_content_type())
        return asked, data

    # ------------------------------------------------------------ resumable

    def _begun(self, request: Request, bucket: str, query: dict[str, str]) -> Response:
        asked: Json = body_of(request)
        self._document.check("Object", asked)
        asked.setdefault(
            "contentType", request.headers.get("X-Upload-Content-Type", "application/octet-stream")
        )
        name, conditions = _name(query, asked), Conditions.of(query)
        self._store.require(bucket, name, conditions)
        key = secrets.token_urlsafe(24)
        self._sessions[key] = Session(bucket, name, {**_hashes(request), **asked}, conditions)
        where = f"{request.host_url}upload/storage/v1/b/{bucket}/o?uploadType=resumable&upload_id={key}"
        return Response("", 200, {"Location": where, "X-GUploader-UploadID": key})

    def _continued(self, request: Request, key: str, fault: Fault | None) -> Response:
        session = self._sessions.get(key)
        if session is None:
            raise ApiError(404, "notFound", "The upload session is unknown or has expired.")
        with session.lock:
            if request.method == "DELETE":
                del self._sessions[key]
                return Response("", 499)
            if session.made is not None:
                return json_response(session.made)
            return self._received(request, session, fault)

    def _received(self, request: Request, session: Session, fault: Fault | None) -> Response:
        chunk = request.get_data()
        first, total = _range(request, len(chunk))
        if chunk:
            if first > len(session.data):
                raise ApiError(400, "invalid", f"Missing bytes: the session holds {len(session.data)}.")
            fresh = chunk[len(session.data) - first :]
            if fault is not None and fault.kind == "cut":
                session.data += fresh[: len(fresh) // 2 // CHUNK * CHUNK]
                raise Broken
            session.data += fresh
        if total is None or len(session.data) < total:
            if total is None and len(chunk) % CHUNK:
                message = f"A chunk that is not the last must be a multiple of {CHUNK} bytes."
                raise ApiError(400, "invalid", message)
            held = {"Range": f"bytes=0-{len(session.data) - 1}"} if session.data else {}
            return Response("", 308, held)
        if len(session.data) > total:
            raise ApiError(400, "invalid", "More bytes than were announced.")
        asked = {**session.asked, **_hashes(request)}
        session.made = self._store.put(
            session.bucket, session.name, bytes(session.data), asked, session.conditions
        )
        return json_response(session.made)


def _range(request: Request, size: int) -> tuple[int, int | None]:
    """Where the chunk begins, and how large the object is, if that is known yet."""
    text = request.headers.get("Content-Range", "")
    if not text:
        return 0, size
    found = re.fullmatch(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)", text)
    if found is None or (found.group(1) and int(found.group(2)) - int(found.group(1)) + 1 != size):
        raise ApiError(400, "invalid", f"Invalid Content-Range: {text}")
    total = None if found.group(3) == "*" else int(found.group(3))
    return int(found.group(1) or 0), total


def _name(query: dict[str, str], asked: Json) -> str:
    name = str(query.get("name") or asked.get("name") or "")
    if not name or len(name.encode()) > 1024 or "\n" in name or "\r" in name:
        raise ApiError(400, "required" if not name else "invalid", f"Invalid object name: {name[:80]!r}")
    return name


def _hashes(request: Request) -> Json:
    """Checksums that come as headers."""
    found = dict(
        part.strip().partition("=")[::2] for part in request.headers.get("X-Goog-Hash", "").split(",")
    )
    names = {"crc32c": found.get("crc32c"), "md5Hash": found.get("md5") or request.headers.get("Content-MD5")}
    return {name: value for name, value in names.items() if value}


def _raw_part(request: Request) -> bytes:
    """The second part byte by byte: the standard library's parser would change line ends."""
    boundary = str(request.mimetype_params.get("boundary", "")).encode()
    pieces = request.get_data().split(b"--" + boundary)
    second = pieces[2] if len(pieces) >= 4 else b""
    if not second:
        raise ApiError(400, "badContent", "Malformed multipart body.")
    return second.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n")
