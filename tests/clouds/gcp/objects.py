"""Buckets and objects with the guarantees of Cloud Storage: preconditions, generations, checksums."""

from __future__ import annotations

import base64
import copy
import hashlib
import itertools
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import google_crc32c

from tests.clouds.gcp.errors import ApiError, Json
from tests.clouds.gcp.world import timestamp

Decided = Callable[[], None]


@dataclass
class Stored:
    """One generation of an object; `live` until it is replaced or deleted."""

    data: bytes
    shape: Json
    live: bool = True


@dataclass
class Bucket:
    shape: Json
    objects: dict[str, list[Stored]] = field(default_factory=dict)

    @property
    def versioned(self) -> bool:
        return bool(self.shape.get("versioning", {}).get("enabled"))


@dataclass(frozen=True)
class Conditions:
    """What a request demands of the object as it is."""

    generation_is: int | None = None
    generation_is_not: int | None = None
    metageneration_is: int | None = None
    metageneration_is_not: int | None = None

    @staticmethod
    def of(query: Mapping[str, str]) -> Conditions:
        def number(name: str) -> int | None:
            return int(query[name]) if name in query else None

        return Conditions(
            number("ifGenerationMatch"),
            number("ifGenerationNotMatch"),
            number("ifMetagenerationMatch"),
            number("ifMetagenerationNotMatch"),
        )

    def require(self, now: Stored | None, *, reading: bool = False) -> None:
        """ApiError 412, or 304 where something unchanged is read."""
        generation = int(now.shape["generation"]) if now else 0
        meta = int(now.shape["metageneration"]) if now else None
        if self.generation_is is not None and generation != self.generation_is:
            raise _unmet("If-Generation-Match")
        if self.metageneration_is is not None and meta != self.metageneration_is:
            raise _unmet("If-Metageneration-Match")
        same = self.generation_is_not is not None and generation == self.generation_is_not
        if same or (self.metageneration_is_not is not None and meta == self.metageneration_is_not):
            if reading:
                raise ApiError(304, "notModified", "Not Modified")
            raise _unmet("If-Generation-Not-Match" if same else "If-Metageneration-Not-Match")


class Store:
    """All buckets of the project. Every method is atomic."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._buckets: dict[str, Bucket] = {}
        self._generations = itertools.count(int(time.time() * 1e6))

    # ------------------------------------------------------------ buckets

    def make_bucket(self, project: str, asked: Json) -> Json:
        name = asked.get("name", "")
        if not re.fullmatch(r"[a-z0-9][a-z0-9_.-]{1,61}[a-z0-9]", name) or name.startswith("goog"):
            raise ApiError(400, "invalid", f"Invalid bucket name: '{name}'")
        with self._lock:
            if name in self._buckets:
                message = "Your previous request to create the named bucket succeeded and you already own it."
                raise ApiError(409, "conflict", message)
            shape = {
                "location": "US",
                "storageClass": "STANDARD",
                **asked,
                "kind": "storage#bucket",
                "id": name,
                "projectNumber": project,
                "metageneration": "1",
                "timeCreated": timestamp(),
                "updated": timestamp(),
                "etag": "CAE=",
            }
            self._buckets[name] = Bucket(shape)
            return shape

    def bucket(self, name: str) -> Bucket:
        with self._lock:
            found = self._buckets.get(name)
        if found is None:
            raise ApiError(404, "notFound", "The specified bucket does not exist.")
        return found

    def buckets(self) -> list[Json]:
        with self._lock:
            return [bucket.shape for _, bucket in sorted(self._buckets.items())]

    def delete_bucket(self, name: str) -> None:
        with self._lock:
            if any(versions for versions in self.bucket(name).objects.values()):
                raise ApiError(409, "conflict", "The bucket you tried to delete is not empty.")
            del self._buckets[name]

    # ------------------------------------------------------------ objects

    def require(self, bucket: str, name: str, conditions: Conditions) -> None:
        """Check before a long upload begins; put() checks again."""
        with self._lock:
            conditions.require(self._live(self.bucket(bucket), name))

    def put(self, bucket: str, name: str, data: bytes, asked: Json, conditions: Conditions) -> Json:
        """A new generation, if the conditions hold at this moment and the checksums are right."""
        crc32c, md5 = checksums(data)
        _require_checksum("CRC32C", asked.get("crc32c"), crc32c)
        _require_checksum("MD5", asked.get("md5Hash"), md5)
        with self._lock:
            home = self.bucket(bucket)
            conditions.require(self._live(home, name))
            generation = self._next()
            shape = {
                "contentType": "application/octet-stream",
                "storageClass": "STANDARD",
                **asked,
                "kind": "storage#object",
                "id": f"{bucket}/{name}/{generation}",
                "bucket": bucket,
                "name": name,
                "generation": str(generation),
                "metageneration": "1",
                "size": str(len(data)),
                "crc32c": crc32c,
                "md5Hash": md5,
                "etag": base64.b64encode(b"%d" % generation).decode(),
                "timeCreated": timestamp(),
                "updated": timestamp(),
            }
            self._retire(home, name)
            home.objects.setdefault(name, []).append(Stored(data, shape))
            return copy.deepcopy(shape)

    def get(self, bucket: str, name: str, generation: str | None, conditions: Conditions) -> Stored:
        with self._lock:
            found = self._found(bucket, name, generation)
            conditions.require(found, reading=True)
            return Stored(found.data, copy.deepcopy(found.shape), found.live)

    def delete(self, bucket: str, name: str, generation: str | None, conditions: Conditions) -> None:
        with self._lock:
            found = self._found(bucket, name, generation)
            conditions.require(found)
            home = self.bucket(bucket)
            if generation is None:
                self._retire(home, name)
            else:
                home.objects[name].remove(found)

    def patch(self, bucket: str, name: str, changed: Json, conditions: Conditions) -> Json:
        """Change metadata: same generation, next metageneration."""
        with self._lock:
            found = self._found(bucket, name, None)
            conditions.require(found)
            metadata = {**found.shape.get("metadata", {}), **(changed.get("metadata") or {})}
            found.shape.update(changed, updated=timestamp())
            found.shape["metadata"] = {key: value for key, value in metadata.items() if value is not None}
            found.shape["metageneration"] = str(int(found.shape["metageneration"]) + 1)
            return copy.deepcopy(found.shape)

    def list(self, bucket: str, *, versions: bool) -> list[Json]:
        """Objects by name, then generation."""
        with self._lock:
            stored = self._all(self.bucket(bucket))
            return [copy.deepcopy(one.shape) for one in stored if one.live or versions]

    def _all(self, home: Bucket) -> Iterator[Stored]:
        for name in sorted(home.objects):
            yield from home.objects[name]

    def _found(self, bucket: str, name: str, generation: str | None) -> Stored:
        home = self.bucket(bucket)
        if generation is None:
            found = self._live(home, name)
        else:
            versions = home.objects.get(name, [])
            found = next((one for one in versions if one.shape["generation"] == generation), None)
        if found is None:
            raise ApiError(404, "notFound", f"No such object: {bucket}/{name}")
        return found

    def _live(self, home: Bucket, name: str) -> Stored | None:
        return next((one for one in home.objects.get(name, []) if one.live), None)

    def _retire(self, home: Bucket, name: str) -> None:
        """End the live generation: kept as a noncurrent one where the bucket has versions."""
        live = self._live(home, name)
        if live is None:
            return
        if home.versioned:
            live.live = False
            live.shape["timeDeleted"] = timestamp()
        else:
            home.objects[name].remove(live)

    def _next(self) -> int:
        return next(self._generations)


def checksums(data: bytes) -> tuple[str, str]:
    """CRC32C and MD5 as the API writes them: base64."""
    crc = base64.b64encode(google_crc32c.value(data).to_bytes(4)).decode()
    return crc, base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()


def _require_checksum(kind: str, given: str | None, calculated: str) -> None:
    if given and given != calculated:
        message = f'Provided {kind} "{given}" doesn\'t match calculated {kind} "{calculated}".'
        raise ApiError(400, "invalid", message)


def _unmet(which: str) -> ApiError:
    message = "At least one of the pre-conditions you specified did not hold."
    return ApiError(412, "conditionNotMet", f"{message} ({which})")
