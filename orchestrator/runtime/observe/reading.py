"""Operations that hand a graph's tensors to Python, and leave the graph's other operations as they were.

TensorFlow's graph optimiser orders a graph's nodes by their distance from what must run, keeps the first of
two equal computations, and takes sums in the order of the kept ones' names. So additions elsewhere in a
graph can change the last bits of a result, where the graph holds equal computations. Hence as little as
possible is added: calls into Python, no conditions, no constants; and what reads a tensor is not itself
something that must run, but hangs at the end of a chain of identities, longer than any other way to the
tensor, which the optimiser then removes.

Where one function updates two models by losses that share computations, a second operation that must run
was enough to move the last bit of some weights. So a graph gets a single one.

A call takes its tensors to Python in each step of the run, which costs a fraction of a millisecond where
they already are in the host's memory. On other devices, empty slices take their place after the last
observed step.
"""

from __future__ import annotations

import weakref
from typing import Any, Callable, List, Optional, Sequence

from .fusion import OURS

DISTANCE = 128
"""Identities between a reading and what must run: more than lie between a tensor and the nearest update."""

ALL = (1 << 31) - 1
"""Rows to read while tensors are wanted."""

Sink = Callable[..., None]
"""Takes arrays, one for each tensor."""


class Readings:
    """Builds readings in the graph under construction. `wants`: whether arrays are still asked for."""

    def __init__(self, tf: Any, wants: Callable[[], bool]) -> None:
        self._tf = tf
        self._wants = wants
        self._beside_host: Optional[bool] = None
        self._rows: Any = weakref.WeakKeyDictionary()

    def read(self, tensors: List[Any], sink: Sink, *, after: Sequence[Any] = ()) -> Any:
        """Hand `tensors` to `sink` each time the graph runs, once `after` ran. To be passed to `must_run`."""
        count = len(after)

        def act(*arrays: Any) -> int:
            if self._wants():
                sink(*arrays[count:])
            return 0

        with self._tf.name_scope(OURS):
            done = self._python(act, [*after, *self._wanted_part(tensors)], stateful=False)
            with self._tf.device("/CPU:0"):
                for _ in range(DISTANCE):
                    done = self._tf.identity(done)
        return done

    def must_run(self, readings: List[Any]) -> None:
        """Have `readings` run whenever the graph does."""
        with self._tf.name_scope(OURS):
            self._python(lambda *_: 0, readings, stateful=True)

    def forget(self) -> None:
        """What follows in this graph is another step: ask anew whether it is wanted."""
        self._rows.pop(self._graph(), None)

    def close(self) -> None:
        """Let go of all graphs."""
        self._rows.clear()

    def _graph(self) -> Any:
        return self._tf.compat.v1.get_default_graph()

    def _wanted_part(self, tensors: List[Any]) -> List[Any]:
        """Each tensor; where that means a copy from a device, no row of it once it is not wanted."""
        if not self._devices():
            return tensors
        rows = self._asked()
        return [tensor[:rows] if tensor.shape.rank else tensor for tensor in tensors]

    def _devices(self) -> bool:
        """Whether there are other devices than the host's processor."""
        if self._beside_host is None:
            found = self._tf.config.get_visible_devices()
            self._beside_host = any(device.device_type != "CPU" for device in found)
        return self._beside_host

    def _asked(self) -> Any:
        """How many rows are wanted, asked once for each graph: it crosses into Python."""
        graph = self._graph()
        if graph not in self._rows:
            self._rows[graph] = self._python(lambda: ALL if self._wants() else 0, [], stateful=True)
        return self._rows[graph]

    def _python(self, act: Callable[..., int], tensors: List[Any], *, stateful: bool) -> Any:
        import numpy as np

        with self._tf.device("/CPU:0"):
            result = self._tf.numpy_function(
                lambda *arrays: np.int32(act(*arrays)), tensors, self._tf.int32, stateful=stateful
            )
        result.set_shape(())
        return result
