"""How the two sides talk over one channel: messages and file bodies, each with its length in front.

A message is JSON. A body is pieces of bytes and then an empty piece; what cannot be read any more ends
with GONE and a message that says why.
"""

from __future__ import annotations

import json
import struct
from typing import Any, Callable, Iterator

Read = Callable[[int], bytes]
"""Up to so many bytes, at least one; b"" at the end."""
Write = Callable[[bytes], Any]

PIECE = 1 << 18
_LIMIT = 1 << 29
_LONGEST_PIECE = 1 << 22
_GONE = 0xFFFFFFFF
_LENGTH = struct.Struct(">I")


class Broken(Exception):
    """The other side went away, or says what is no message."""


class Gone(Exception):
    """The other side cannot deliver this body; the text says why."""


def send(write: Write, message: Any) -> None:
    data = json.dumps(message, separators=(",", ":")).encode()
    write(_LENGTH.pack(len(data)) + data)


def receive(read: Read, most: int = _LIMIT) -> Any:
    try:
        return json.loads(_piece(read, _length(read), most))
    except (ValueError, RecursionError) as error:
        raise Broken("what came is no message") from error


def send_body(write: Write, pieces: Iterator[bytes]) -> int:
    """Send a body; its length. An OSError from `pieces` tells the other side that it will not come."""
    total = 0
    try:
        for piece in pieces:
            write(_LENGTH.pack(len(piece)) + piece)
            total += len(piece)
    except OSError as error:
        write(_LENGTH.pack(_GONE))
        send(write, error.strerror or str(error))
        return total
    write(_LENGTH.pack(0))
    return total


def first_bytes(pieces: Iterator[bytes], size: int) -> Iterator[bytes]:
    """The first `size` bytes of `pieces`, or all where there are fewer."""
    left = size
    for piece in pieces:
        part = piece[:left]
        if part:
            yield part
        left -= len(part)
        if not left:
            return


def receive_body(read: Read) -> Iterator[bytes]:
    """The pieces of a body. Gone where it ends before its end; further bodies can follow."""
    while True:
        length = _length(read)
        if length == _GONE:
            raise Gone(str(receive(read, _LONGEST_PIECE)))
        if not length:
            return
        yield _piece(read, length, _LONGEST_PIECE)


def _length(read: Read) -> int:
    return int(_LENGTH.unpack(exactly(read, _LENGTH.size))[0])


def _piece(read: Read, length: int, most: int) -> bytes:
    if length > most:
        raise Broken(f"a message of {length} bytes is too long")
    return exactly(read, length)


def exactly(read: Read, size: int) -> bytes:
    """`size` bytes. Broken where the other side ends before."""
    data = bytearray()
    while len(data) < size:
        more = read(size - len(data))
        if not more:
            raise Broken("the other side went away")
        data += more
    return bytes(data)
