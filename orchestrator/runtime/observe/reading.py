"""Operations that pass a graph's tensors to Python without changing the graph's other operations.

TensorFlow's graph optimiser orders nodes by their distance from the operations that must run, keeps the first
of two equal computations, and sums in the order of the names of those kept. So an addition elsewhere in a
graph with equal computations can change the last bits of a result. Hence as little as possible is added:
calls into Python, no conditions, no constants. An operation that reads a tensor is not itself one that must
run; it is connected to one by a chain of identities that is longer than any other path to the tensor, and
which the optimiser then removes.

Measured: if one function updates two models by losses that share computations, a second operation that must
run changed the last bit of some weights. So a graph gets only one.

Each call passes its tensors to Python in every step of the run, which costs a fraction of a millisecond if
they are already in the host's memory. On other devices, they are replaced by empty slices after the last
observed step.
"""

from __future__ import annotations

import weakref
from typing import Any, Callable, List, Optional, Sequence

from .fusion import OURS

DISTANCE = 128
"""Length of the chain of identities: more than the operations between a tensor and the nearest update."""

ALL = (1 << 31) - 1
"""Rows to read while tensors are wanted."""

Sink = Callable[..., None]
"""Called with arrays, one for each tensor."""


class Readings:
    """Builds reading operations in the graph under construction. `wants`: whether arrays are still
    requested."""

    def __init__(self, tf: Any, wants: Callable[[], bool]) -> None:
        self._tf = tf
        self._wants = wants
        self._beside_host: Optional[bool] = None
        self._rows: Any = weakref.WeakKeyDictionary()

    def read(self, tensors: List[Any], sink: Sink, *, after: Sequence[Any] = ()) -> Any:
        """Return an operation that passes `tensors` to `sink` each time the graph runs, after `after` ran.
        Pass it to `must_run`."""
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
        """Make `readings` run whenever the graph does."""
        with self._tf.name_scope(OURS):
            self._python(lambda *_: 0, readings, stateful=True)

    def forget(self) -> None:
        """Begin another step in this graph: ask anew whether it is wanted."""
        self._rows.pop(self._graph(), None)

    def close(self) -> None:
        """Release all graphs."""
        self._rows.clear()

    def _graph(self) -> Any:
        return self._tf.compat.v1.get_default_graph()

    def _wanted_part(self, tensors: List[Any]) -> List[Any]:
        """Return the tensors; if they have to be copied from a device, with no rows once they are not
        wanted."""
        if not self._devices():
            return tensors
        rows = self._asked()
        return [tensor[:rows] if tensor.shape.rank else tensor for tensor in tensors]

    def _devices(self) -> bool:
        """Whether there are devices other than the host's processor."""
        if self._beside_host is None:
            found = self._tf.config.get_visible_devices()
            self._beside_host = any(device.device_type != "CPU" for device in found)
        return self._beside_host

    def _asked(self) -> Any:
        """Return the number of rows that are wanted, asked once per graph because it calls Python."""
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
