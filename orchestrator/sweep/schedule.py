"""Schedule points with Dask: each one once, on the first free machine.

By default its scheduler and workers, one thread for each machine, are in this process and exchange their
messages in memory. With an address, they are those of a cluster.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import dask
from distributed import Client, KilledWorker, Scheduler, SpecCluster, Worker, as_completed, get_worker
from distributed.comm.inproc import global_manager

from orchestrator.errors import HostError, UsageError
from orchestrator.model.sweeps import Point
from orchestrator.sweep.remote import Remote, train_there
from orchestrator.sweep.training import Done

Work = Callable[[int, Point], Done]

_MACHINE = "machine"
"""The Dask resource: each worker has one, each point needs one."""
_BARE: dict[str, object] = {
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
}
"""Without status pages, whose data Dask collects anyway: the stack of each worker every 10 ms, and the delays
of its event loop every 20 ms. Workers wait for machines, so that would be most of what a sweep computes here.
"""
_HERE = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
"""Dask always opens a port for its status pages: this one is local only, and without pages."""
_ANSWER = "15s"


class Schedule:
    """Assigns points to machines. `submit(number, point)`: let Dask train the point on that machine."""

    def __init__(self, client: Client, submit: Callable[[int, Point], Any], machines: int) -> None:
        self._client, self._submit = client, submit
        self._usable = set(range(1, machines + 1))
        self._busy: Counter[int] = Counter()
        self._given: dict[str, tuple[int, Point]] = {}
        self._waiting: Iterator[Point] = iter(())
        self._bound: dict[int, deque[Point]] = {}

    def each(self, points: Iterable[Point], bound: Sequence[tuple[Point, int]]) -> Iterator[Done]:
        """Yield the result of each point, in the order in which they end.

        `points`: its next one is taken when a machine is free. `bound`: points whose runs are active or
        queued already, with their machines, which train them first, in this order. If a machine fails for a
        point, another machine gets the point, and the failed one gets no more. If it was the last one, or the
        point is bound to it, the point is yielded with the error, and no further points are started.
        """
        self._waiting = iter(points)
        for point, number in bound:
            self._bound.setdefault(number, deque()).append(point)
        placed = {point.run_id for point, _ in bound}
        ends: Any = as_completed(self._next(), loop=self._client.loop)  # type: ignore[no-untyped-call]
        for future in ends:
            done = self._result(future)
            if done.elsewhere:
                self._usable.discard(done.number)
                self._bound.pop(done.number, None)
            if done.elsewhere and self._usable and done.point.run_id not in placed:
                self._waiting = chain((done.point,), self._waiting)
            else:
                yield done
            ends.update(self._next())

    def stop(self) -> None:
        """Start no further points; results of active ones are still yielded."""
        self._waiting = iter(())

    def _result(self, future: Any) -> Done:
        number, point = self._given.pop(future.key)
        self._busy[number] -= 1
        try:
            done: Done = future.result()
        except KilledWorker as error:
            lost = HostError(
                f"Dask's workers died while they trained {point.run_id}: {error}", next_command="orch status"
            )
            return Done(number, point, lost)
        return done

    def _next(self) -> list[Any]:
        """Start a point on each free machine."""
        free = [number for number in sorted(self._usable | set(self._bound)) if not self._busy[number]]
        return [self._start(number, point) for number in free if (point := self._point_for(number))]

    def _point_for(self, number: int) -> Point | None:
        if bound := self._bound.get(number):
            return bound.popleft()
        return next(self._waiting, None) if number in self._usable else None

    def _start(self, number: int, point: Point) -> Any:
        self._busy[number] += 1
        future = self._submit(number, point)
        self._given[future.key] = (number, point)
        return future


# ---------------------------------------------------------------- in this process


class _Trains(Worker):
    """A worker that trains points by `work`."""

    def __init__(self, *args: Any, work: Work, **options: Any) -> None:
        super().__init__(*args, **options)
        self.work = work


def _here(number: int, point: Point) -> Done:
    worker: Any = get_worker()
    done: Done = worker.work(number, point)
    return done


@contextmanager
def schedule_here(machines: int, work: Work, scratch: Path, *, more: int = 0) -> Iterator[Schedule]:
    """Start Dask with a worker for each machine, and `more` for active runs on other machines, which are
    followed to their ends.

    `scratch`: a folder for the workers' files. An interrupt leaves the block at once: runs on machines
    continue without this process.
    """
    own = {"resources": {_MACHINE: 1}, "nthreads": 1, "memory_limit": None, "work": work}
    global_manager._ip = (
        "127.0.0.1"  # otherwise Dask looks for a route to 8.8.8.8, and warns if there is none
    )
    with dask.config.set({**_BARE, "temporary-directory": str(scratch)}):
        cluster = SpecCluster(  # type: ignore[no-untyped-call]
            workers={n: {"cls": _Trains, "options": {**own, **_HERE}} for n in range(machines + more)},
            scheduler={"cls": Scheduler, "options": {"protocol": "inproc", **_HERE}},
            silence_logs=logging.CRITICAL,
        )
    client = Client(cluster)  # type: ignore[no-untyped-call]
    try:
        yield Schedule(client, _submitting(client, _here), machines)
    except Exception:
        _close(client, cluster)
        raise
    _close(client, cluster)


# ---------------------------------------------------------------- on a cluster


@contextmanager
def schedule_on(address: str, machines: int, remote: Remote) -> Iterator[Schedule]:
    """Use the cluster whose scheduler is at `address`, with certificates from Dask's configuration.

    Raises UsageError if it does not answer, or none of its workers has the resource `machine`.
    """
    try:
        client = Client(address, timeout=_ANSWER, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, TypeError, ValueError) as error:
        raise UsageError(
            f"No Dask scheduler answers at {address}: {str(error) or type(error).__name__}. "
            "Nothing was started.",
            next_command="dask scheduler    # with its certificates in ~/.config/dask: docs/how-to/sweep.md",
        ) from error
    try:
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        able = sum(worker["resources"].get(_MACHINE, 0) >= 1 for worker in workers)
        if not able:
            raise UsageError(
                f"None of the {len(workers)} workers of {address} has the resource {_MACHINE}. "
                "Nothing was started.",
                next_command=f"dask worker {address} --nthreads 1 --resources {_MACHINE}=1    # on each",
            )
        submit = _submitting(client, train_there, remote)
        yield Schedule(client, submit, min(machines, able))
    finally:
        client.close()  # type: ignore[no-untyped-call]


def _submitting(client: Client, function: Callable[..., Done], *first: object) -> Callable[[int, Point], Any]:
    def submit(number: int, point: Point) -> Any:
        return client.submit(function, *first, number, point, resources={_MACHINE: 1}, pure=False)

    return submit


def _close(client: Any, cluster: Any) -> None:
    client.close()
    cluster.close()
