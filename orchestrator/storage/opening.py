"""From a url to its store."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

from orchestrator.errors import StorageError, StorageFault
from orchestrator.model.paths import with_home
from orchestrator.model.store_keys import shown
from orchestrator.model.stores import Store

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def open_store(url: str) -> Store:
    """The store of a url. Nothing is contacted. Raises StorageError with the nearest form of a wrong url."""
    scheme, separator, rest = url.partition("://")
    opener = _OPENERS.get(scheme)
    if not separator or opener is None:
        raise _wrong(url, _nearest(url))
    return opener(url, rest.rstrip("/") if scheme != "file" else rest)


def _file(url: str, rest: str) -> Store:
    from .files import FileStore

    path = unquote(rest.removeprefix("localhost"))
    if not path.startswith("/"):
        raise _wrong(url, _absolute(path or "."))
    if any(ord(letter) < 32 for letter in path):
        raise _wrong(url, None)
    return FileStore(Path(os.path.normpath(path)))


def _memory(url: str, rest: str) -> Store:
    from .memory import memory_store

    if not _NAME.fullmatch(rest):
        raise _wrong(url, "memory://name")
    return memory_store(rest)


_OPENERS: dict[str, Callable[[str, str], Store]] = {"file": _file, "memory": _memory}


def _nearest(url: str) -> str | None:
    """What was probably meant by a url of no known scheme."""
    scheme, colon, rest = url.partition(":")
    known = scheme.lower()
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
        StorageFault.URL, f"{shown(url)} is no url of a store, which begins with one of {forms}.{meant}"
    )
