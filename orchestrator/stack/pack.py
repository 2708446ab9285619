"""Send files to a machine: one tar stream into `tar -x`, compressed while that saves time."""

from __future__ import annotations

import io
import tarfile
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import HostError, StackError
from orchestrator.model import Channel, Host, Progress
from orchestrator.model.plain import last_words

_CHUNK = 1 << 20
_HEADER = 512
_UNPACKED_WITHIN = 900.0
"""Seconds for tar to end after everything was sent."""


@dataclass(frozen=True)
class Member:
    """One file of a stream. `path`: on the machine. The content comes from a file or from memory; or
    `link`: the target of a link.
    """

    path: str
    source: Path | bytes = b""
    mode: int = 0o644
    link: str = ""

    @property
    def size(self) -> int:
        if self.link:
            return 0
        return len(self.source) if isinstance(self.source, bytes) else self.source.stat().st_size


def send(
    host: Host, members: Sequence[Member], folder: str, *, squeeze: bool, label: str, progress: Progress
) -> int:
    """Unpack `members` into `folder` on the machine, which is created. Return the number of bytes in them.

    `squeeze`: the machine has gzip. Not atomic: send to a new folder, then rename it. Raise StackError with
    what tar printed, HostError if contact was lost.
    """
    unpack = (
        'mkdir -p "$1" && gzip -dc | tar -xf - -C "$1"' if squeeze else 'mkdir -p "$1" && tar -xf - -C "$1"'
    )
    total = sum(member.size for member in members)
    with host.open(("sh", "-c", unpack, "sh", folder)) as channel:
        try:
            with _Sink(channel, squeeze) as sink:
                _write_tar(sink, members, total, label, progress)
            channel.close_stdin()
        except HostError as error:
            _explain(channel, label, error)
        done = channel.wait(_UNPACKED_WITHIN)
    if done.returncode != 0:
        raise StackError(_refusal(label, done.stderr))
    progress.transfer(label, total, total)
    return total


def _explain(channel: Channel, label: str, lost: HostError) -> None:
    """Raise the error for a broken pipe: StackError if tar gave up, else the HostError."""
    try:
        done = channel.wait(5)
    except Exception:
        raise lost from None
    if done.returncode > 0 and done.stderr:
        raise StackError(_refusal(label, done.stderr)) from lost
    raise lost


def _refusal(label: str, stderr: bytes) -> str:
    return f"The machine could not unpack {label}: {last_words(stderr) or 'no reason given'}"


def _write_tar(sink: _Sink, members: Sequence[Member], total: int, label: str, progress: Progress) -> None:
    done = 0
    # Mode "w|" would collect what it writes in a buffer that is copied at every write.
    with tarfile.TarFile(fileobj=sink, mode="w", format=tarfile.GNU_FORMAT, copybufsize=_CHUNK) as archive:
        for member in members:
            _add(archive, member)
            done += member.size
            if done < total:
                progress.transfer(label, done, total)


def _add(archive: tarfile.TarFile, member: Member) -> None:
    info = tarfile.TarInfo(member.path)
    info.mode = member.mode
    info.mtime = int(time.time())
    if member.link:
        info.type, info.linkname = tarfile.SYMTYPE, member.link
        archive.addfile(info)
    elif isinstance(member.source, bytes):
        info.size = len(member.source)
        archive.addfile(info, io.BytesIO(member.source))
    else:
        with member.source.open("rb") as stream:
            info.size = member.source.stat().st_size
            archive.addfile(info, stream)


class _Sink(io.RawIOBase):
    """A channel as a file that tarfile writes to. With `squeeze`, its output is gzip.

    Each chunk is a gzip member of its own, so that the compression level can change during a transfer: a
    chunk is compressed while that takes less time than it saves on this connection.
    """

    def __init__(self, channel: Channel, squeeze: bool) -> None:
        self._channel = channel
        self._squeeze = squeeze
        self._pending = bytearray()
        self._plain_chunks = 0
        self._written = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._written

    def write(self, data: object) -> int:
        piece = memoryview(data)  # type: ignore[arg-type]
        self._pending += piece
        self._written += len(piece)
        while len(self._pending) >= _CHUNK:
            self._flush_chunk(bytes(self._pending[:_CHUNK]))
            del self._pending[:_CHUNK]
        return len(piece)

    def close(self) -> None:
        if not self.closed and self._pending:
            self._flush_chunk(bytes(self._pending))
            self._pending.clear()
        super().close()

    def _flush_chunk(self, chunk: bytes) -> None:
        if not self._squeeze:
            self._channel.write(chunk)
        elif self._plain_chunks:
            self._plain_chunks -= 1
            self._channel.write(_gzip(chunk, 0))
        else:
            self._send_measured(chunk)

    def _send_measured(self, chunk: bytes) -> None:
        begun = time.monotonic()
        packed = _gzip(chunk, 1)
        ready = time.monotonic()
        self._channel.write(packed)
        on_the_line = time.monotonic() - ready
        saved = on_the_line * (len(chunk) / len(packed) - 1)
        if saved < ready - begun:
            self._plain_chunks = 15


def _gzip(chunk: bytes, level: int) -> bytes:
    squeezer = zlib.compressobj(level, zlib.DEFLATED, 31)
    return squeezer.compress(chunk) + squeezer.flush()
