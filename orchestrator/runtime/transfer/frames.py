"""Frames, in which both sides exchange messages and file bodies over one channel, each with its length first.

A message is JSON. A body is a sequence of pieces, of which the last has the bit LAST in its length; if its
file cannot be read to the end, it ends with GONE and a message with the reason. A piece with the bit PACKED
is compressed.
"""

from __future__ import annotations

import json
import struct
from typing import Any, Callable, Iterator

from .squeeze import Squeeze, unpacked

Read = Callable[[int], bytes]
"""Returns at most that many bytes, and at least one; b"" at the end."""
Write = Callable[[bytes], Any]

PIECE = 1 << 18
_LIMIT = 1 << 29
_LONGEST_PIECE = 1 << 22
_LAST = 1 << 31
_PACKED = 1 << 30
_GONE = 0xFFFFFFFF
_LENGTH = struct.Struct(">I")


class Broken(Exception):
    """The other side closed the connection, or sent something that is not a frame."""


class Gone(Exception):
    """The other side cannot send this body; the text is the reason."""


def send(write: Write, message: Any) -> None:
    data = json.dumps(message, separators=(",", ":")).encode()
    write(_LENGTH.pack(len(data)) + data)


def receive(read: Read, most: int = _LIMIT) -> Any:
    try:
        return json.loads(_piece(read, _length(read), most))
    except (ValueError, RecursionError) as error:
        raise Broken("the received bytes are not a message") from error


def send_body(write: Write, pieces: Iterator[bytes], squeeze: Squeeze) -> int:
    """Send a body, compressed if `squeeze` finds that this pays; returns its length. If `pieces` raises
    OSError, the other side is told that the body is incomplete."""
    total, held = 0, b""
    try:
        for piece in pieces:
            if held:
                _send_piece(write, held, 0, squeeze)
            held = piece
            total += len(piece)
    except OSError as error:
        write(_LENGTH.pack(_GONE))
        send(write, error.strerror or str(error))
        return total
    _send_piece(write, held, _LAST, squeeze)
    return total


def _send_piece(write: Write, piece: bytes, last: int, squeeze: Squeeze) -> None:
    smaller = squeeze.smaller(piece)
    data, packed = (piece, 0) if smaller is None else (smaller, _PACKED)
    squeeze.write(write, _LENGTH.pack(len(data) | last | packed) + data)


def first_bytes(pieces: Iterator[bytes], size: int) -> Iterator[bytes]:
    """Yield the first `size` bytes of `pieces`, or all if there are fewer."""
    left = size
    for piece in pieces:
        part = piece[:left]
        if part:
            yield part
        left -= len(part)
        if not left:
            return


def receive_body(read: Read) -> Iterator[bytes]:
    """Yield the pieces of a body. Raises Gone if it is incomplete; further bodies can follow."""
    last = 0
    while not last:
        length = _length(read)
        if length == _GONE:
            raise Gone(str(receive(read, _LONGEST_PIECE)))
        last = length & _LAST
        piece = _piece(read, length & ~(_LAST | _PACKED), _LONGEST_PIECE)
        yield _unpacked(piece) if length & _PACKED else piece


def _unpacked(piece: bytes) -> bytes:
    data = unpacked(piece, _LONGEST_PIECE)
    if data is None:
        raise Broken("a compressed piece is damaged")
    return data


def _length(read: Read) -> int:
    return int(_LENGTH.unpack(exactly(read, _LENGTH.size))[0])


def _piece(read: Read, length: int, most: int) -> bytes:
    if length > most:
        raise Broken(f"a message of {length} bytes is too long")
    return exactly(read, length)


def exactly(read: Read, size: int) -> bytes:
    """Return `size` bytes. Raises Broken if the other side ends before that."""
    data = read(size) if size else b""
    while len(data) < size:
        more = read(size - len(data))
        if not more:
            raise Broken("the other side went away")
        data += more
    return data
