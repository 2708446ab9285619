"""A link with a delay and a rate, on loopback: a TCP proxy in a process of its own.

python slow_link.py PORT ROUND_TRIP_MS MBIT_S      MBIT_S 0: as fast as it can

Prints the port that it listens on, and forwards each connection to PORT of 127.0.0.1 until its standard input
ends. Each direction delays what it carries by half of the round trip and, with a rate, gives all connections
together that many bits a second, with a burst of 64 KiB. At most WINDOW bytes of a connection are on their
way. Not shown by it: loss, and TCP's slow start over the link, as each half is a connection on loopback. To
open a connection takes no round trip either, which is to the advantage of who opens many.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

PIECE, BURST, WINDOW = 16 << 10, 64 << 10, 8 << 20


class Direction:
    """What one direction of the link shares: its rate, and when it is free again."""

    def __init__(self, delay_s: float, bytes_s: float) -> None:
        self.delay_s, self.bytes_s = delay_s, bytes_s
        self._paid_until = 0.0

    def arrival(self, size: int) -> float:
        """When `size` bytes that are sent now arrive, by the loop's clock."""
        now = asyncio.get_running_loop().time()
        if not self.bytes_s:
            return now + self.delay_s
        self._paid_until = max(self._paid_until, now - BURST / self.bytes_s) + size / self.bytes_s
        return max(now, self._paid_until) + self.delay_s


async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, by: Direction) -> None:
    """Forward until the end, or until either side is gone."""
    on_the_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(WINDOW // PIECE)
    delivering = asyncio.create_task(deliver(on_the_way, writer))
    piece = b"-"
    while piece and not delivering.done():
        try:
            piece = await reader.read(PIECE)
        except OSError:
            piece = b""
        await on_the_way.put((by.arrival(len(piece)), piece))
    await delivering


async def deliver(on_the_way: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while True:
            arrival, piece = await on_the_way.get()
            wait = arrival - asyncio.get_running_loop().time()
            if wait > 0:
                await asyncio.sleep(wait)
            if not piece:
                writer.write_eof()
                return
            writer.write(piece)
            await writer.drain()
    while (await on_the_way.get())[1]:  # nobody reads it, and its sender must not wait
        pass


async def serve(port: int, round_trip_s: float, bytes_s: float) -> None:
    there, back = (Direction(round_trip_s / 2, bytes_s) for _ in range(2))

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            await asyncio.gather(carry(reader, far_writer, there), carry(far_reader, writer, back))
        finally:
            far_writer.close()
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), ended.set)
    await ended.wait()
    os._exit(0)  # a link that is cut says nothing of what is on its way


@contextlib.contextmanager
def slow_link(port: int, round_trip_ms: float, mbit_s: float) -> Iterator[int]:
    """Yield the port of a link to `port`."""
    command = [sys.executable, str(Path(__file__)), str(port), str(round_trip_ms), str(mbit_s)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), float(sys.argv[2]) / 1000, float(sys.argv[3]) * 1e6 / 8))
