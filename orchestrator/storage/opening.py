"""Open the store of a URL."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

from orchestrator.errors import StorageError, StorageFault
from orchestrator.model.paths import with_home
from orchestrator.model.store_keys import check_key, shown
from orchestrator.model.stores import Store

_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
_ALSO = {"gcs": "gs", "s3a": "s3", "s3n": "s3"}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def open_store(url: str, *, requester_pays: bool = False) -> Store:
    """Return the store of a URL without contacting it. Raises StorageError, which suggests the nearest valid
    form.

    `requester_pays`: accept the cost of reading a bucket with requester pays.
    """
    scheme, separator, rest = url.partition("://")
    opener = _OPENERS.get(scheme)
    if not separator or opener is None:
        raise _wrong(url, _nearest(url))
    return opener(url, rest.rstrip("/") if scheme != "file" else rest, requester_pays)


def _file(url: str, rest: str, _pays: bool) -> Store:
    from .files import FileStore

    path = unquote(rest.removeprefix("localhost"))
    if not path.startswith("/"):
        raise _wrong(url, _absolute(path or "."))
    if any(ord(letter) < 32 for letter in path):
        raise _wrong(url, None)
    return FileStore(Path(os.path.normpath(path)))


def _memory(url: str, rest: str, _pays: bool) -> Store:
    from .memory import memory_store

    if not _NAME.fullmatch(rest):
        raise _wrong(url, "memory://name")
    return memory_store(rest)


def _s3(url: str, rest: str, pays: bool) -> Store:
    from .bucket import BucketStore
    from .s3 import S3Driver

    bucket, prefix = _bucket(url, rest)
    return BucketStore(f"s3://{rest}", prefix, S3Driver(f"s3://{bucket}", bucket, requester_pays=pays))


def _gs(url: str, rest: str, pays: bool) -> Store:
    from .bucket import BucketStore
    from .gs import GsDriver

    bucket, prefix = _bucket(url, rest)
    return BucketStore(f"gs://{rest}", prefix, GsDriver(f"gs://{bucket}", bucket, requester_pays=pays))


_OPENERS: dict[str, Callable[[str, str, bool], Store]] = {
    "file": _file,
    "memory": _memory,
    "s3": _s3,
    "gs": _gs,
}


def _bucket(url: str, rest: str) -> tuple[str, str]:
    """Split a URL into bucket and prefix, which ends with "/" unless it is empty."""
    bucket, _, prefix = rest.partition("/")
    if not _BUCKET.fullmatch(bucket):
        lower = bucket.lower()
        near = f"{url.partition('://')[0]}://{lower}/{prefix}".rstrip("/")
        raise _wrong(url, near if _BUCKET.fullmatch(lower) else None)
    if prefix:
        check_key(prefix)
    return bucket, f"{prefix}/" if prefix else ""


def _nearest(url: str) -> str | None:
    """Guess the intended URL for one with an unknown scheme."""
    hosted = re.match(r"https?://([a-z0-9.-]+)\.s3[.-][^/]*amazonaws\.com/?(.*)", url)
    if hosted:
        return f"s3://{hosted[1]}/{hosted[2]}".rstrip("/")
    if public := re.match(r"https?://storage\.(?:googleapis|cloud\.google)\.com/(.+)", url):
        return f"gs://{public[1]}"
    scheme, colon, rest = url.partition(":")
    known = _ALSO.get(scheme.lower(), scheme.lower())
    if colon and known in _OPENERS:
        return f"{known}://{rest.lstrip('/')}" if known != "file" else f"file:///{rest.lstrip('/')}"
    if "://" in url or "\0" in url:
        return None
    return _absolute(url) if url else None


def _absolute(path: str) -> str:
    return (Path.cwd() / with_home(Path(path))).as_uri()


def _wrong(url: str, near: str | None) -> StorageError:
    meant = f" Did you mean {near}?" if near else ""
    forms = ", ".join(f"{scheme}://" for scheme in _OPENERS)
    return StorageError(
        StorageFault.URL, f"{shown(url)} is not the URL of a store, which starts with one of {forms}.{meant}"
    )
