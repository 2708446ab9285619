"""The calls of Amazon S3, and of compatible servers, by boto3.

The version of an object is its ETag, which S3 uses in conditions and listings. The same content written twice
may have the same ETag. Every write sends its SHA-256, which S3 compares with the content; an object in parts
has one for each part, and the SHA-256 of the whole object in its metadata.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import os
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from orchestrator.errors import Changed, Missing, StorageError, StorageFault
from orchestrator.model.stores import Grant, Link, Stored

from .bucket import Anything, Sink, repeated
from .placing import local
from .s3_client import S3Connection, connected, region_of
from .s3_errors import asking

PART = 16 << 20
LARGEST_POST = 5 << 30
_LONGEST_LINK_S = 7 * 86400.0
_MOST_PARTS = 9_000
_CHUNK = 1 << 20
_PARALLEL = 4
_SHA256 = "orch-sha256"
_HEADERS = {"IfMatch": "If-Match", "RequestPayer": "x-amz-request-payer"}
"""Signed headers of a link, which a request to it has to send."""


class S3Driver:
    def __init__(self, url: str, bucket: str, *, requester_pays: bool = False) -> None:
        self._url = url
        self._bucket = bucket
        self._payer = {"RequestPayer": "requester"} if requester_pays else {}

    def region(self) -> str:
        return region_of(self._client, self._url, self._bucket) or ""

    def write(self, name: str, body: bytes, expected: str | Anything | None) -> Stored:
        digest = hashlib.sha256(body)
        try:
            with self._asking(name, expected):
                answer = self._client.put_object(
                    Bucket=self._bucket,
                    Key=name,
                    Body=body,
                    ChecksumSHA256=base64.b64encode(digest.digest()).decode(),
                    Metadata={_SHA256: digest.hexdigest()},
                    **_condition(expected),
                )
        except Missing as absent:  # S3 answers so to a condition on a missing object
            wanted = None if isinstance(expected, Anything) else expected
            raise Changed(self._url, name, expected=wanted, found=None) from absent
        with self._asking(name, expected):
            return Stored(name, len(body), _etag(answer), f"sha256:{digest.hexdigest()}")

    def upload(self, name: str, path: Path) -> Stored:
        size, whole, parts = _hashes(path)
        with self._asking(name, Anything()):
            made = self._client.create_multipart_upload(
                Bucket=self._bucket, Key=name, ChecksumAlgorithm="SHA256", Metadata={_SHA256: whole}
            )
        at = {"Bucket": self._bucket, "Key": name, "UploadId": made["UploadId"]}
        try:
            with ThreadPoolExecutor(_PARALLEL) as pool:
                sent = list(pool.map(lambda part: self._send(path, at, part), parts))
            return self._complete(at, sent, Stored(name, size, "", f"sha256:{whole}"))
        except BaseException:
            self._abort(at)
            raise

    def facts(self, name: str) -> Stored | None:
        with self._asking(name, Anything(), absent_is_none=True):
            answer = self._client.head_object(
                Bucket=self._bucket, Key=name, ChecksumMode="ENABLED", **self._payer
            )
            return Stored(name, int(answer["ContentLength"]), _etag(answer), _checksum(answer))
        return None  # the object was missing

    def read(self, name: str, version: str | None, start: int, sink: Sink) -> Stored:
        wanted = {"IfMatch": f'"{version}"'} if version is not None else {}
        part = {"Range": f"bytes={start}-"} if start else {"ChecksumMode": "ENABLED"}
        with self._asking(name, version):
            answer = self._client.get_object(Bucket=self._bucket, Key=name, **wanted, **part, **self._payer)
            for chunk in answer["Body"].iter_chunks(_CHUNK):
                sink(chunk)
            size = start + int(answer.get("ContentLength", 0))
            return Stored(name, size, _etag(answer), "" if start else _checksum(answer))

    def page(self, prefix: str, token: str | None) -> tuple[list[Stored], str | None]:
        more = {**self._payer, **({"ContinuationToken": token} if token else {})}
        with self._asking(prefix, Anything()):
            answer = self._client.list_objects_v2(Bucket=self._bucket, Prefix=prefix, **more)
            found = [Stored(one["Key"], int(one["Size"]), _etag(one)) for one in answer.get("Contents", ())]
        return found, answer.get("NextContinuationToken") if answer.get("IsTruncated") else None

    def remove(self, name: str, expected: str | None) -> None:
        wanted = {"IfMatch": f'"{expected}"'} if expected is not None else {}
        with self._asking(name, expected):
            self._client.delete_object(Bucket=self._bucket, Key=name, **wanted)

    def link(self, name: str, lasts: float, version: str | None) -> Link | None:
        wanted = {"IfMatch": f'"{version}"'} if version is not None else {}
        at = {"Bucket": self._bucket, "Key": name, **wanted, **self._payer}
        with self._asking(name, version):
            expires, seconds = self._until(lasts)
            url = self._client.generate_presigned_url("get_object", Params=at, ExpiresIn=seconds)
        return Link(url, {_HEADERS[field]: at[field] for field in _HEADERS if field in at}, expires)

    def grant(self, prefix: str, lasts: float) -> Grant | None:
        with self._asking(prefix, Anything()):
            expires, seconds = self._until(lasts)
            made = self._client.generate_presigned_post(
                self._bucket,
                f"{prefix}${{filename}}",
                Conditions=[["content-length-range", 0, LARGEST_POST]],
                ExpiresIn=seconds,
            )
        fields = {name: text for name, text in made["fields"].items() if name != "key"}
        return Grant(made["url"], fields, prefix, expires)

    def _until(self, lasts: float) -> tuple[datetime, int]:
        """Return when a signature that is made now expires: with the credentials, or after a week."""
        now = datetime.now(UTC)
        seconds = min(lasts, _LONGEST_LINK_S)
        credentials = self._connection.session.get_credentials()
        if credentials is not None:
            credentials.get_frozen_credentials()  # for a role, the expiry is known only after this
        ends = getattr(credentials, "_expiry_time", None)
        if isinstance(ends, datetime):
            seconds = min(seconds, (ends - now).total_seconds())
        if seconds < 1:
            raise StorageError(StorageFault.AUTH, f"The credentials for {self._url} are about to expire.")
        return now + timedelta(seconds=int(seconds)), int(seconds)

    def _send(self, path: Path, at: dict[str, str], part: tuple[int, int, int, str]) -> dict[str, Any]:
        number, start, size, checksum = part
        with local(path), open(path, "rb") as file:
            file.seek(start)
            body = file.read(size)
        sent = repeated(lambda: self._send_part(at, number, body, checksum))
        return {"PartNumber": number, "ETag": sent, "ChecksumSHA256": checksum}

    def _send_part(self, at: dict[str, str], number: int, body: bytes, checksum: str) -> str:
        with self._asking(at["Key"], Anything()):
            answer = self._client.upload_part(**at, PartNumber=number, Body=body, ChecksumSHA256=checksum)
            return str(answer["ETag"])

    def _complete(self, at: dict[str, str], parts: list[dict[str, Any]], wanted: Stored) -> Stored:
        """Combine the parts. If the reply is lost, the object shows whether it succeeded."""

        def complete() -> None:
            with self._asking(wanted.key, Anything()):
                self._client.complete_multipart_upload(**at, MultipartUpload={"Parts": parts})

        try:
            repeated(complete)
        except StorageError:
            found = self.facts(wanted.key)
            if found is None or (found.size, found.checksum) != (wanted.size, wanted.checksum):
                raise
            return found
        found = self.facts(wanted.key)
        if found is None:
            raise Changed(self._url, wanted.key, expected="the written one", found=None)
        return found

    def _abort(self, at: dict[str, str]) -> None:
        """Delete uploaded parts, which cost money. Those of a killed writer are deleted by a lifecycle rule
        of the bucket.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            self._client.abort_multipart_upload(**at)
        except (BotoCoreError, ClientError, StorageError):
            pass

    def _asking(self, name: str, expected: str | Anything | None, *, absent_is_none: bool = False) -> Any:
        return asking(self._url, self._bucket, name, expected, absent_is_none=absent_is_none)

    @functools.cached_property
    def _connection(self) -> S3Connection:
        return connected(self._url, self._bucket)

    @property
    def _client(self) -> Any:
        return self._connection.client


def _condition(expected: str | Anything | None) -> dict[str, str]:
    if isinstance(expected, Anything):
        return {}
    return {"IfNoneMatch": "*"} if expected is None else {"IfMatch": f'"{expected}"'}


def _etag(answer: Any) -> str:
    """Return the ETag of an answer. Raises ValueError if it is malformed, because a header will contain it
    later.
    """
    etag = str(answer.get("ETag", "")).strip('"')
    if not re.fullmatch(r"[!#-~]{1,128}", etag):
        raise ValueError("no ETag")
    return etag


def _checksum(answer: Any) -> str:
    """Return the best checksum of the whole object: that of S3, ours for an object in parts, or a usable
    ETag.

    For an object in parts, S3's SHA-256 is a hash of the parts' hashes, and its ETag ends with their number.
    An ETag is the MD5 of the content if the object was sent whole and is not encrypted with a key of KMS or
    of the customer.
    """
    in_parts = "-" in _etag(answer)
    if not in_parts and (whole := _plain(answer.get("ChecksumSHA256"), 32)):
        return f"sha256:{whole}"
    if re.fullmatch(r"[0-9a-f]{64}", ours := str(answer.get("Metadata", {}).get(_SHA256, ""))):
        return f"sha256:{ours}"
    if answer.get("ChecksumType") != "COMPOSITE" and (short := _plain(answer.get("ChecksumCRC32C"), 4)):
        return f"crc32c:{short}"
    plain = answer.get("ServerSideEncryption") in (None, "AES256") and "SSECustomerAlgorithm" not in answer
    etag = _etag(answer)
    return f"md5:{etag}" if plain and re.fullmatch(r"[0-9a-f]{32}", etag) else ""


def _plain(value: str | None, size: int) -> str | None:
    """Return a base64 checksum of so many bytes as hex digits; None for a checksum of parts."""
    if not value or "-" in value:
        return None
    try:
        found = base64.b64decode(value, validate=True)
    except ValueError:
        return None
    return found.hex() if len(found) == size else None


def _hashes(path: Path) -> tuple[int, str, list[tuple[int, int, int, str]]]:
    """Return size and SHA-256 of a file, and of each part its number, start, size and base64 checksum."""
    whole = hashlib.sha256()
    parts: list[tuple[int, int, int, str]] = []
    start = 0
    with local(path), open(path, "rb") as file:
        part = max(PART, -(-os.fstat(file.fileno()).st_size // _MOST_PARTS))
        while body := file.read(part):
            whole.update(body)
            own = base64.b64encode(hashlib.sha256(body).digest()).decode()
            parts.append((len(parts) + 1, start, len(body), own))
            start += len(body)
    return start, whole.hexdigest(), parts
