"""What is sent over a slow link is compressed where that pays, and arrives as it was."""

from __future__ import annotations

import io
import random
import struct
import zlib
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.runtime.transfer import frames
from orchestrator.runtime.transfer.squeeze import Squeeze

WORDS = b"the loss of the step and the rate of the step and the epoch, " * 400
NOISE = random.Random(1).randbytes(len(WORDS))
MBIT = 1e6 / 8


class Link:
    """Takes bytes at a rate, by a clock of its own."""

    def __init__(self, bytes_s: float) -> None:
        self.now, self.taken, self._bytes_s = 0.0, io.BytesIO(), bytes_s

    def write(self, data: bytes) -> None:
        self.now += len(data) / self._bytes_s
        self.taken.write(data)

    def clock(self) -> float:
        return self.now

    def sent(self, bodies: list[bytes], squeeze: Squeeze) -> int:
        """Bytes that these bodies took."""
        before = len(self.taken.getvalue())
        for body in bodies:
            frames.send_body(self.write, pieces(body), squeeze)
        return len(self.taken.getvalue()) - before


def pieces(body: bytes) -> Iterator[bytes]:
    return (body[at : at + frames.PIECE] for at in range(0, len(body), frames.PIECE))


def heard(data: bytes, count: int) -> list[bytes]:
    source = io.BytesIO(data)
    return [b"".join(frames.receive_body(source.read)) for _ in range(count)]


def test_words_over_a_slow_link_are_a_third_and_arrive_as_they_were() -> None:
    link = Link(50 * MBIT)
    squeeze = Squeeze(link.clock)
    bodies = [WORDS, NOISE] * 60
    first = link.sent(bodies, squeeze)
    assert first < 0.8 * sum(map(len, bodies))
    assert link.sent([WORDS], squeeze) < len(WORDS) / 3
    assert heard(link.taken.getvalue(), len(bodies) + 1) == [*bodies, WORDS]


def test_noise_is_sent_as_it_is() -> None:
    link = Link(5 * MBIT)
    squeeze = Squeeze(link.clock)
    assert link.sent([NOISE] * 100, squeeze) == 100 * (len(NOISE) + 4)


def test_over_a_fast_link_nothing_is_compressed() -> None:
    link = Link(1000 * MBIT)
    squeeze = Squeeze(link.clock)
    assert link.sent([WORDS] * 200, squeeze) == 200 * (len(WORDS) + 4)


def test_a_link_that_becomes_fast_is_noticed() -> None:
    link = Link(5 * MBIT)
    squeeze = Squeeze(link.clock)
    link.sent([WORDS] * 100, squeeze)
    assert squeeze.slow
    link._bytes_s = 1000 * MBIT
    link.sent([NOISE] * 4000, squeeze)
    assert not squeeze.slow


@given(st.lists(st.one_of(st.binary(max_size=3000), st.just(WORDS), st.just(b"")), max_size=6))
def test_any_bodies_arrive_whole_over_a_slow_link(bodies: list[bytes]) -> None:
    link = Link(MBIT)
    squeeze = Squeeze(link.clock)
    link.sent([NOISE] * 60, squeeze)
    before = len(link.taken.getvalue())
    link.sent(bodies, squeeze)
    assert heard(link.taken.getvalue()[before:], len(bodies)) == bodies


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"not compressed",
        zlib.compress(WORDS)[:-5],
        zlib.compress(WORDS) + b"more",
        zlib.compress(bytes(64 << 20)),  # far longer than any piece
    ],
    ids=["nothing", "other", "cut", "more", "bomb"],
)
def test_a_damaged_piece_is_refused(packed: bytes) -> None:
    source = io.BytesIO(struct.pack(">I", len(packed) | 1 << 31 | 1 << 30) + packed)
    with pytest.raises(frames.Broken):
        list(frames.receive_body(source.read))
