"""Queue points on their machines instead of following them: `orch sweep --detach`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from queue import SimpleQueue

from orchestrator.model.sweeps import Point
from orchestrator.sweep.training import Done

Train = Callable[[int, Point], Done]
Told = SimpleQueue[Done | Exception | None]


class Queueing:
    """Queues points, with a thread for each machine. `train(number, point)`: queue the point on that machine,
    or download its run if that has ended.
    """

    def __init__(self, train: Train, machines: int) -> None:
        self._train = train
        self._usable = set(range(1, machines + 1))
        self._stopped = threading.Event()

    def each(self, points: Iterable[Point], bound: Sequence[tuple[Point, int]]) -> Iterator[Done]:
        """Yield each point when it is queued or was downloaded. `bound`: points whose runs were started
        already, with their machines.

        The points of a machine that fails go to the others, except those that are bound to it, which are
        yielded with the error. If it was the last machine, one point is yielded with the error.
        """
        placed = {point.run_id for point, _ in bound}
        shares = shared(points, bound, self._usable)
        try:
            while shares and not self._stopped.is_set():
                refused: list[Done] = []
                for done in self._in_threads(shares):
                    if done.elsewhere:
                        self._usable.discard(done.number)
                    if done.elsewhere and done.point.run_id not in placed:
                        refused.append(done)
                    else:
                        yield done
                if refused and not self._usable:
                    yield refused[0]
                shares = shared([done.point for done in refused], (), self._usable)
        finally:
            self.stop()

    def stop(self) -> None:
        """Queue no further points."""
        self._stopped.set()

    def _in_threads(self, shares: Mapping[int, Sequence[Point]]) -> Iterator[Done]:
        """Yield the result of each point. The threads end with the process: an interrupt waits for none."""
        told: Told = SimpleQueue()
        for number, share in shares.items():
            threading.Thread(target=self._queue_share, args=(number, share, told), daemon=True).start()
        going_on = len(shares)
        while going_on:
            done = told.get()
            if done is None:
                going_on -= 1
            elif isinstance(done, Exception):
                raise done
            else:
                yield done

    def _queue_share(self, number: int, share: Sequence[Point], told: Told) -> None:
        failed: Done | None = None
        try:
            for point in share:
                if self._stopped.is_set():
                    break
                done = replace(failed, point=point) if failed else self._train(number, point)
                failed = done if done.elsewhere else None
                told.put(done)
        except Exception as error:
            told.put(error)
        finally:
            told.put(None)


def shared(
    points: Iterable[Point], bound: Sequence[tuple[Point, int]], usable: Collection[int]
) -> dict[int, list[Point]]:
    """Return the points of each machine: those bound to it, then the next one always for the machine that has
    the fewest. Without a usable machine, only the bound ones.
    """
    shares: dict[int, list[Point]] = {number: [] for number in sorted(usable)}
    for point, number in bound:
        shares.setdefault(number, []).append(point)
    for point in points if usable else ():
        fewest = min(sorted(usable), key=lambda number: len(shares[number]))
        shares[fewest].append(point)
    return {number: share for number, share in shares.items() if share}
