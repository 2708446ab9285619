"""Dask's scheduler in this process: each point once, on the first machine that is free.

The scheduler and its workers, one thread for each machine, exchange their messages in memory.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

import dask
from distributed import Client, Scheduler, SpecCluster, Worker, as_completed, get_worker
from distributed.comm.inproc import global_manager

from orchestrator.model.sweeps import Point
from orchestrator.sweep.training import Done

Work = Callable[[int, Point], Done]

_MACHINE = "machine"
"""The resource that each worker has one of, and each point needs."""
_NO_PAGES: dict[str, list[str]] = {
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}
_HERE = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
"""Dask always opens a port for its status pages: one that nobody else reaches, and without a page."""


class _Machine(Worker):
    """The worker of one machine. `work` trains a point there; its name is the machine's number."""

    def __init__(self, *args: Any, work: Work, **options: Any) -> None:
        super().__init__(*args, **options)
        self.work = work


class Schedule:
    """Gives points to machines."""

    def __init__(self, client: Client, machines: int) -> None:
        self._client = client
        self._usable = set(range(1, machines + 1))
        self._waiting: Iterator[Point] = iter(())
        self._active = 0

    def each(self, points: Iterable[Point], bound: Sequence[tuple[Point, int]]) -> Iterator[Done]:
        """Yield what became of each point, as they end. `points` is asked for one when a machine is free.

        `bound`: points whose runs go on already, with their machines. If a machine cannot do a point, another
        one gets it, and that machine gets no more. If it was the last one, the point is yielded with the
        error, and no further points are started.
        """
        self._waiting = iter(points)
        ends: Any = as_completed(  # type: ignore[no-untyped-call]
            [self._given(point, [machine]) for point, machine in bound]
        )
        ends.update(self._next())
        for future in ends:
            self._active -= 1
            done: Done = future.result()
            if done.elsewhere:
                self._usable.discard(done.number)
            if done.elsewhere and self._usable:
                self._waiting = chain((done.point,), self._waiting)
            else:
                yield done
            ends.update(self._next())

    def stop(self) -> None:
        """Start no further points; those that run are still yielded."""
        self._waiting = iter(())

    def _next(self) -> list[Any]:
        """Start a point for each free machine."""
        started = []
        while self._active < len(self._usable) and (point := next(self._waiting, None)):
            started.append(self._given(point, sorted(self._usable)))
        return started

    def _given(self, point: Point, machines: Sequence[int]) -> Any:
        self._active += 1
        return self._client.submit(
            _on_machine, point, workers=list(machines), resources={_MACHINE: 1}, pure=False
        )


@contextmanager
def schedule(machines: int, work: Work, *, more: Iterable[int] = ()) -> Iterator[Schedule]:
    """Start Dask with a worker for each machine. `more`: numbers of machines that only end what they began.

    An interrupt leaves the block at once: what the machines do goes on without this process.
    """
    numbers = sorted({*range(1, machines + 1), *more})
    own = {"resources": {_MACHINE: 1}, "nthreads": 1, "memory_limit": None, "work": work}
    global_manager._ip = "127.0.0.1"  # it would look for the way to 8.8.8.8, and warn where there is none
    with dask.config.set(_NO_PAGES):
        cluster = SpecCluster(  # type: ignore[no-untyped-call]
            workers={number: {"cls": _Machine, "options": {**own, **_HERE}} for number in numbers},
            scheduler={"cls": Scheduler, "options": {"protocol": "inproc", **_HERE}},
            silence_logs=logging.CRITICAL,
        )
    client = Client(cluster)  # type: ignore[no-untyped-call]
    try:
        yield Schedule(client, machines)
    except Exception:
        _close(client, cluster)
        raise
    _close(client, cluster)


def _close(client: Any, cluster: Any) -> None:
    client.close()
    cluster.close()


def _on_machine(point: Point) -> Done:
    machine: Any = get_worker()
    done: Done = machine.work(int(machine.name), point)
    return done
