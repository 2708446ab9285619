"""Download wheels from their indexes into this computer's cache, several at a time, each verified by its
SHA-256.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from threading import Lock as Mutex
from typing import BinaryIO

from orchestrator.errors import StackError
from orchestrator.hosts.atomic import new_folder
from orchestrator.model import Progress
from orchestrator.stack.indexes import authorization
from orchestrator.stack.wheels import Wheel

_AT_ONCE = 6
_TRIES = 4
_CHUNK = 1 << 18
_PATIENCE = 60.0


class DownloadFailed(StackError):
    """A file could not be downloaded from the address that an index gave for it."""


def cached(wheel: Wheel, cache: Path) -> Path:
    """Return the path of a wheel in the cache, whether or not it is there."""
    return cache / "wheels" / wheel.sha256 / wheel.filename


def collect(
    wheels: Sequence[Wheel],
    cache: Path,
    progress: Progress,
    *,
    index_lines: tuple[str, ...] = (),
    environ: Mapping[str, str] = os.environ,
) -> list[Path]:
    """Download the wheels that are missing in the cache, and return the paths of all. Raise StackError,
    naming what failed.
    """
    absent = [wheel for wheel in wheels if not cached(wheel, cache).is_file()]
    meter = _Meter(absent, progress)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        jobs = {pool.submit(_fetch, wheel, cache, meter, index_lines, environ): wheel for wheel in absent}
        try:
            for job in as_completed(jobs):
                job.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    meter.end()
    return [cached(wheel, cache) for wheel in wheels]


class _Meter:
    """Bytes of all downloads together; the total grows when a size becomes known late."""

    def __init__(self, wheels: Sequence[Wheel], progress: Progress) -> None:
        self._progress = progress
        self._mutex = Mutex()
        self._done = 0
        self._total = sum(wheel.size or 0 for wheel in wheels)

    def expect(self, size: int) -> None:
        with self._mutex:
            self._total += size

    def add(self, count: int) -> None:
        with self._mutex:
            self._done += count
            # never complete: the size of another wheel may become known
            self._progress.transfer("wheels", self._done, max(self._total, self._done + 1))

    def end(self) -> None:
        if self._done:
            self._progress.transfer("wheels", self._done, self._done)


def _fetch(
    wheel: Wheel, cache: Path, meter: _Meter, lines: tuple[str, ...], environ: Mapping[str, str]
) -> None:
    folder = cache / "wheels"
    folder.mkdir(parents=True, exist_ok=True)
    fresh = new_folder(folder)
    try:
        digest = _with_patience(
            wheel, fresh / wheel.filename, meter, authorization(wheel.url, environ, lines)
        )
        if digest != wheel.sha256:
            raise StackError(
                f"{wheel.filename} is not the file that the lock names: "
                f"its SHA-256 is {digest}, not {wheel.sha256}."
            )
        _adopt(fresh, cached(wheel, cache).parent)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _adopt(fresh: Path, final: Path) -> None:
    fresh.chmod(0o755)
    try:
        fresh.rename(final)
    except OSError:
        if not final.is_dir():
            raise


def _with_patience(wheel: Wheel, target: Path, meter: _Meter, login: str | None) -> str:
    """Download a wheel, with retries after network errors, and return the SHA-256 of what arrived."""
    for attempt in range(1, _TRIES + 1):
        try:
            return _download(wheel, target, meter, login)
        except OSError as error:
            status = getattr(error, "code", None)
            final = attempt == _TRIES or (
                isinstance(status, int) and status < 500 and status not in (408, 429)
            )
            if final or not wheel.url.startswith("http"):
                raise DownloadFailed(f"{wheel.filename} could not be downloaded: {_said(error)}") from error
            time.sleep(0.5 * 2**attempt)
    raise AssertionError("unreachable")


def _said(error: OSError) -> str:
    status = getattr(error, "code", None)
    if status in (401, 403):
        return (
            f"its index requires a login (HTTP {status}). orch looked for one in the settings of uv and pip, "
            "and in ~/.netrc."
        )
    return f"{getattr(error, 'reason', None) or error}."


def _download(wheel: Wheel, target: Path, meter: _Meter, login: str | None) -> str:
    from urllib.request import Request, urlopen

    request = Request(wheel.url, headers={"User-Agent": "orch", "Accept-Encoding": "identity"})
    if login and wheel.url.startswith("http"):
        request.add_unredirected_header("Authorization", login)
    with urlopen(request, timeout=_PATIENCE) as answer, target.open("wb") as stream:
        if wheel.size is None:
            meter.expect(int(answer.headers.get("Content-Length") or 0))
        return _copy(answer, stream, meter)


def _copy(source: BinaryIO, target: BinaryIO, meter: _Meter) -> str:
    digest = hashlib.sha256()
    while piece := source.read(_CHUNK):
        target.write(piece)
        digest.update(piece)
        meter.add(len(piece))
    return digest.hexdigest()
