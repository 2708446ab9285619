"""Several processes with one Pool each: the interpreter of one process keeps no more than one core busy.

A process is forked, so that it costs milliseconds, and only while its parent has a single thread. It ends
with its parent, because its pipe is closed then. All parts of an object belong to one process, which hashes
it.
"""

# Close to the kernel: pipes and descriptors that outlive a block need os calls, not pathlib.
# ruff: noqa: PTH208, SIM115

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import struct
import threading
from typing import IO, Any, Dict, List, NoReturn, Optional, Set, Union

from .download import Damaged, Event, Failed, Link, Order, Part, Pool, Verified
from .staging import Staging, Wanted

MOST = 4
THREADS = 24
"""Connections of all processes together."""
_WORTH = 100
"""Objects for which a process is worth its start; so are _LARGE bytes."""
_LARGE = 64 << 20
_EACH = 1 << 16
"""Bytes that fetching takes as long as what every object costs, however small."""
_AT_ONCE = 64
_LENGTH = struct.Struct(">I")


def pool_for(staging: Staging, wanted: List[Wanted], need: List[int], may_fork: bool) -> Union[Pool, Workers]:
    """Return what fetches the objects `need`: processes, if this one may fork and they are worth it."""
    worth = len(need) // _WORTH + sum(wanted[number].size for number in need) // _LARGE
    count = min(MOST, worth, len(need), len(os.sched_getaffinity(0)))
    if may_fork and count > 1:
        return Workers(staging, wanted, count)
    return Pool(staging, wanted, THREADS)


class Workers:
    """A Pool in each of `count` processes, with the interface of one. The caller has a single thread."""

    def __init__(self, staging: Staging, wanted: List[Wanted], count: int) -> None:
        self._wanted = wanted
        self._events: "queue.SimpleQueue[Event]" = queue.SimpleQueue()
        self._owner: Dict[int, int] = {}
        self._load = [0] * count
        self._workers: List[_Worker] = []
        for _ in range(count):
            self._workers.append(_Worker(staging, wanted, THREADS // count))
        for worker in self._workers:
            threading.Thread(target=self._hear, args=(worker,), daemon=True).start()

    def begin(self, order: Order) -> None:
        """Have a process fetch what is missing of an object."""
        owner = min(range(len(self._load)), key=self._load.__getitem__)
        self._owner[order.number] = owner
        self._load[owner] += self._weight(order.number)
        self._workers[owner].say(order)

    def again(self, part: Part) -> None:
        """Have the part's process fetch it once more."""
        self._workers[self._owner[part.number]].say(part)

    def take(self, timeout: float) -> Optional[Event]:
        """Return the next event; None if there is none for so many seconds."""
        try:
            event = self._events.get(timeout=timeout)
        except queue.Empty:
            return None
        if isinstance(event, (Verified, Damaged)):
            self._load[self._owner.pop(event.number)] -= self._weight(event.number)
        return event

    def close(self) -> None:
        """End the processes; what they have begun stays in staging."""
        for worker in self._workers:
            worker.end()

    def _weight(self, number: int) -> int:
        return self._wanted[number].size + _EACH

    def _hear(self, worker: _Worker) -> None:
        try:
            while True:
                for event in worker.hear():
                    self._events.put(event)
        except (EOFError, OSError, ValueError):  # ValueError: closed here
            self._events.put(Failed(_NO_PART, "local", "a process that fetched objects was killed"))


_NO_PART = Part(0, 0, 0, Link("", {}))


class _Worker:
    """One process, seen from its parent."""

    def __init__(self, staging: Staging, wanted: List[Wanted], threads: int) -> None:
        orders, events = os.pipe(), os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            _work(staging, wanted, threads, orders[0], events[1])
        os.close(orders[0])
        os.close(events[1])
        self._orders, self._events = open(orders[1], "wb"), open(events[0], "rb")

    def say(self, message: Union[Order, Part]) -> None:
        _send(self._orders, message)

    def hear(self) -> List[Event]:
        found: List[Event] = _receive(self._events)
        return found

    def end(self) -> None:
        with contextlib.suppress(OSError):  # it is dead already
            self._orders.close()
        os.waitpid(self._pid, 0)


# ---------------------------------------------------------------- in the process


def _work(staging: Staging, wanted: List[Wanted], threads: int, orders: int, events: int) -> NoReturn:
    """Fetch what is ordered until the parent is gone or wants no more."""
    try:
        _let_go({orders, events})
        pool = Pool(staging, wanted, threads)
        threading.Thread(target=_report, args=(pool, open(events, "wb")), daemon=True).start()
        with open(orders, "rb") as file:
            while True:
                _follow(pool, _receive(file))
    except EOFError:
        os._exit(0)
    finally:
        os._exit(1)


def _let_go(keep: Set[int]) -> None:
    """Close what the parent has open: the client's connection, the tree's lock, the pipes of siblings."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nothing, standard)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in keep:
            with contextlib.suppress(OSError):  # the folder's own
                os.close(int(name))


def _follow(pool: Pool, message: Union[Order, Part]) -> None:
    if isinstance(message, Order):
        pool.begin(message)
    else:
        pool.again(message)


def _report(pool: Pool, file: IO[bytes]) -> None:
    """Pass events on, several at once if they wait."""
    try:
        while True:
            found = [pool.take(None)]
            while len(found) < _AT_ONCE and (event := pool.take(0)) is not None:
                found.append(event)
            _send(file, found)
    finally:
        os._exit(1)  # nobody hears


# ---------------------------------------------------------------- messages


def _send(file: IO[bytes], message: Any) -> None:
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    file.write(_LENGTH.pack(len(data)) + data)
    file.flush()


def _receive(file: IO[bytes]) -> Any:
    """Return the next message of the other process, which runs this code too. Raises EOFError at its end."""
    head = file.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    (length,) = _LENGTH.unpack(head)
    data = file.read(length)
    if len(data) < length:
        raise EOFError
    return pickle.loads(data)
