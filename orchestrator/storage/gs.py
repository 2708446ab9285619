"""The calls of Google Cloud Storage, by its client library.

The version of an object is its generation. Every object has a CRC32C, which is sent with it and compared by
the server.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from orchestrator.errors import Changed, Missing, StorageDenied, StorageError, StorageFault
from orchestrator.model.stores import Grant, Link, Stored

from .bucket import Anything, Sink
from .gs_errors import asking, no_payer
from .placing import local

PART = 16 << 20
LARGEST_POST = 5 << 40
_LONGEST_LINK_S = 7 * 86400.0
_PAGE = 1000
_PATIENCE_S = 60
_FIELDS = "items(name,size,generation,crc32c,md5Hash),nextPageToken"
_PUBLIC = "https://storage.googleapis.com"
_EMULATOR = "STORAGE_EMULATOR_HOST"


class GsDriver:
    def __init__(self, url: str, bucket: str, *, requester_pays: bool = False) -> None:
        self._url = url
        self._bucket_name = bucket
        self._requester_pays = requester_pays
        self._seen = False

    def region(self) -> str:
        """Return the bucket's region; "" if the caller's role shows the objects but not the bucket."""
        try:
            with self._asking("", Anything()):
                self._bucket.reload(retry=None, timeout=_PATIENCE_S)
                told = str(self._bucket.location or "")
        except StorageDenied:
            return ""
        return told.lower() if "-" in told else told

    def write(self, name: str, body: bytes, expected: str | Anything | None) -> Stored:
        with self._asking(name, expected):
            blob = self._bucket.blob(name)
            blob.upload_from_string(
                body,
                content_type="application/octet-stream",
                checksum="crc32c",
                retry=None,
                timeout=_PATIENCE_S,
                **_condition(expected),
            )
            return _stored(blob)

    def upload(self, name: str, path: Path) -> Stored:
        """Upload in parts; the library continues each part after an interruption."""
        from google.cloud.storage.retry import DEFAULT_RETRY

        with local(path), open(path, "rb") as file, self._asking(name, Anything()):
            blob = self._bucket.blob(name, chunk_size=PART)
            blob.upload_from_file(
                file,
                content_type="application/octet-stream",
                size=os.fstat(file.fileno()).st_size,
                checksum="crc32c",
                retry=DEFAULT_RETRY.with_timeout(_PATIENCE_S),
                timeout=_PATIENCE_S,
            )
            return _stored(blob)

    def facts(self, name: str) -> Stored | None:
        try:
            with self._asking(name, Anything()):
                blob = self._bucket.blob(name)
                blob.reload(retry=None, timeout=_PATIENCE_S)
                return _stored(blob)
        except Missing:
            return None

    def read(self, name: str, version: str | None, start: int, sink: Sink) -> Stored:
        found = self.facts(name)
        if found is None:
            raise Missing(self._url, name)
        if version is not None and found.version != version:
            raise Changed(self._url, name, expected=version, found=found.version)
        try:
            self._download(name, int(found.version), start, sink)
        except Changed:  # refused before any byte arrived
            if version is not None:
                raise
            return self.read(name, version, start, sink)
        return found

    def _download(self, name: str, generation: int, start: int, sink: Sink) -> None:
        with self._asking(name, str(generation)):
            self._bucket.blob(name).download_to_file(
                _File(sink),
                start=start or None,
                raw_download=True,
                checksum=None,
                retry=None,
                timeout=_PATIENCE_S,
                if_generation_match=generation,
            )

    def page(self, prefix: str, token: str | None) -> tuple[list[Stored], str | None]:
        with self._asking("", Anything()):
            pages = self._client.list_blobs(
                self._bucket,
                prefix=prefix,
                page_token=token,
                max_results=None,
                page_size=_PAGE,
                fields=_FIELDS,
                retry=None,
                timeout=_PATIENCE_S,
            )
            found = [_stored(blob) for blob in next(pages.pages, ())]
            return found, pages.next_page_token

    def remove(self, name: str, expected: str | None) -> None:
        wanted = {} if expected is None else {"if_generation_match": _generation(expected)}
        with self._asking(name, expected):
            self._bucket.blob(name).delete(retry=None, timeout=_PATIENCE_S, **wanted)

    def link(self, name: str, lasts: float, version: str | None) -> Link | None:
        if self._signer is None:
            return None
        expires, seconds = _until(lasts)
        with self._asking(name, version):
            url = self._bucket.blob(name).generate_signed_url(
                version="v4",
                method="GET",
                expiration=timedelta(seconds=seconds),
                generation=None if version is None else _generation(version),
                credentials=self._signer,
                api_access_endpoint=self._endpoint,
                query_parameters={"userProject": self._payer} if self._payer else None,
            )
        return Link(url, {}, expires)

    def grant(self, prefix: str, lasts: float) -> Grant | None:
        if self._signer is None:
            return None
        expires, _ = _until(lasts)
        with self._asking(prefix, Anything()):
            fields = _signed_policy(self._signer, self._bucket_name, prefix, expires)
        return Grant(f"{self._endpoint}/{self._bucket_name}/", fields, prefix, expires)

    @contextlib.contextmanager
    def _asking(self, name: str, expected: str | Anything | None) -> Iterator[None]:
        """Translate errors in the block. A missing bucket and a missing object have the same status, so the
        bucket is listed to tell them apart.
        """
        try:
            with asking(self._url, self._bucket_name, name, expected):
                yield
        except Missing:
            if not self._seen:
                with contextlib.suppress(StorageDenied):
                    self.page("", None)
            self._seen = True
            raise

    @functools.cached_property
    def _library(self) -> Any:
        try:
            from google.cloud import storage
        except ImportError as error:
            raise StorageError(
                StorageFault.UNKNOWN,
                "google-cloud-storage, the client for Cloud Storage, is not installed.",
                next_command="pip install 'orch-train[gcp]'",
            ) from error
        return storage

    @functools.cached_property
    def _credentials(self) -> tuple[Any, str | None]:
        """Return the credentials of the environment and their project; none for an emulator."""
        from google.auth.credentials import AnonymousCredentials

        return (AnonymousCredentials(), None) if os.environ.get(_EMULATOR) else _environment()

    @functools.cached_property
    def _client(self) -> Any:
        library = self._library
        # the client requires a project, but only creating buckets uses it
        return library.Client(project=self._project or "none", credentials=self._credentials[0])

    @property
    def _project(self) -> str | None:
        return os.environ.get("GOOGLE_CLOUD_PROJECT") or self._credentials[1]

    @functools.cached_property
    def _payer(self) -> str | None:
        """Return the project that pays for requests; None if the bucket's owner does."""
        if not self._requester_pays:
            return None
        if self._project is None:
            raise no_payer(self._url)
        return self._project

    @functools.cached_property
    def _bucket(self) -> Any:
        return self._client.bucket(self._bucket_name, user_project=self._payer)

    @functools.cached_property
    def _signer(self) -> Any:
        """Return credentials that can sign, such as a service account's; None if the environment has none."""
        from google.auth.credentials import Signing

        if os.environ.get(_EMULATOR) and not os.environ.get("GOOGLE_APPLICATION_CREDENTIALS"):
            return None
        with self._asking("", Anything()):
            credentials, _ = _environment()
        return credentials if isinstance(credentials, Signing) else None

    @property
    def _endpoint(self) -> str:
        given = os.environ.get(_EMULATOR, _PUBLIC).rstrip("/")
        return given if given.startswith("http") else f"http://{given}"


class _File:
    """A file object, as the library expects for downloads."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, chunk: bytes) -> int:
        self._sink(chunk)
        return len(chunk)


def _environment() -> tuple[Any, str | None]:
    import google.auth

    found: tuple[Any, str | None] = google.auth.default(
        scopes=["https://www.googleapis.com/auth/devstorage.read_write"]
    )
    return found


def _signed_policy(signer: Any, bucket: str, prefix: str, expires: datetime) -> dict[str, str]:
    """Return the fields of a form that may upload under `prefix`: a policy document and its signature.

    The library's policies allow one exact key only.
    """
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    fields = {
        "x-goog-algorithm": "GOOG4-RSA-SHA256",
        "x-goog-credential": f"{signer.signer_email}/{now[:8]}/auto/storage/goog4_request",
        "x-goog-date": now,
    }
    conditions: list[Any] = [["starts-with", "$key", prefix], ["content-length-range", 0, LARGEST_POST]]
    conditions += [{"bucket": bucket}, *({name: text} for name, text in fields.items())]
    document = {"conditions": conditions, "expiration": expires.strftime("%Y-%m-%dT%H:%M:%SZ")}
    policy = base64.b64encode(json.dumps(document).encode())
    return {**fields, "policy": policy.decode(), "x-goog-signature": signer.sign_bytes(policy).hex()}


def _condition(expected: str | Anything | None) -> dict[str, int]:
    if isinstance(expected, Anything):
        return {}
    return {"if_generation_match": 0 if expected is None else _generation(expected)}


def _generation(version: str) -> int:
    if not version.isdecimal():
        raise StorageError(StorageFault.UNKNOWN, f"{version!r} is not a version of Cloud Storage.")
    return int(version)


def _until(lasts: float) -> tuple[datetime, int]:
    seconds = max(1, int(min(lasts, _LONGEST_LINK_S)))
    return datetime.now(UTC) + timedelta(seconds=seconds), seconds


def _stored(blob: Any) -> Stored:
    return Stored(blob.name, int(blob.size), str(blob.generation), _checksum(blob))


def _checksum(blob: Any) -> str:
    try:
        if blob.crc32c:
            return f"crc32c:{base64.b64decode(blob.crc32c, validate=True).hex()}"
        return f"md5:{base64.b64decode(blob.md5_hash, validate=True).hex()}" if blob.md5_hash else ""
    except ValueError:
        return ""
