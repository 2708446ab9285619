"""Pull a step's batch before the step does, to measure how long that takes, and pass it on unchanged."""

from __future__ import annotations

import functools
import random
import sys
from time import perf_counter, thread_time
from typing import Any, Callable, List, NamedTuple, Optional, Tuple

_SHARE = 0.003
"""Maximum share of the time of all steps that probing may use in CPU time; waiting for a core does
not count.
"""

_CREDIT = 0.025
"""Seconds of CPU time that probing may use at the start, so that a short job is measured too. Importing
TensorFlow takes hundreds of times as long.
"""

_GAP = 6
"""Maximum number of steps between two probes at the start; it grows, so that probes spread over the run."""


class Pulled(NamedTuple):
    """The arguments with which to call the step.

    `wait`: seconds that it waited for input, None if not probed; `cost`: seconds that probing took;
    `failure`: what the input raised after the batches that are passed on.
    """

    arguments: Tuple[Any, ...]
    wait: Optional[float] = None
    cost: float = 0.0
    failure: Optional[Exception] = None

    def call(self, function: Callable[..., Any]) -> Any:
        """Call the step. If the input failed, raise its error after the step has done what it does without a
        batch.
        """
        if self.failure is None:
            return function(*self.arguments)
        import tensorflow as tf

        try:
            function(*self.arguments)
        except (StopIteration, tf.errors.OutOfRangeError):
            pass
        raise self.failure


class Probe:
    """Decide which steps to probe, and probe them. There is one for each model."""

    def __init__(self) -> None:
        self._random = random.Random()  # our own generator: the job's generators must not change
        self._calls = 0
        self._next = 2
        self._spent = 0.0
        self._trained = 0.0
        self._cost = 0.001
        self._spec: Any = None
        self._idle: Optional[float] = None

    def pull(self, arguments: Tuple[Any, ...], steps: int) -> Pulled:
        """Return the arguments for the step, which takes at most `steps` batches.

        The first call is never probed, because the step is traced in it. Nor is the call in which it is
        tested whether batches like these can be passed on: the input gets ahead meanwhile.
        """
        self._calls += 1
        if self._calls < self._next or not self._affordable(steps):
            return Pulled(arguments)
        self._next = self._calls + self._random.randint(1, max(_GAP, self._calls // 8))
        iterator: Any = arguments[0] if len(arguments) == 1 else None
        if not is_plain(iterator):
            return Pulled(arguments)
        if self._spec is not iterator.element_spec and self._spec != iterator.element_spec:
            return Pulled(arguments, cost=self._try(iterator))
        return Pulled(arguments) if self._idle is None else self._pull(iterator, steps, self._idle)

    def learn(self, seconds: float) -> None:
        """Note how long a step took: the time that probing may take grows with it."""
        if self._calls > 1:
            self._trained += seconds

    def _affordable(self, steps: int) -> bool:
        return self._spent + self._cost * steps <= _CREDIT + _SHARE * self._trained

    def _try(self, iterator: Any) -> float:
        """Test, on an empty batch, whether such batches can be passed on; returns the seconds that took."""
        began = perf_counter()
        self._spec = iterator.element_spec
        self._idle = _idle_pull(iterator)
        return perf_counter() - began

    def _pull(self, iterator: Any, steps: int, idle: float) -> Pulled:
        began, working = perf_counter(), thread_time()
        batches: List[Any] = []
        failure = None
        try:
            for _ in range(steps):
                batches.append(next(iterator))  # noqa: PERF401 (what came before the end counts)
        except StopIteration:
            pass
        except Exception as error:
            failure = error
        pulled = perf_counter()
        if not batches and failure is None:  # the step finds the end of the input by itself
            return Pulled((iterator,), cost=pulled - began)
        feed = _feed(iterator, batches)
        wait = max(0.0, pulled - began - idle * len(batches))
        cost = perf_counter() - began - wait
        spent = thread_time() - working
        self._spent += spent
        self._cost = spent / steps
        return Pulled((feed,), wait, cost, failure)


def is_plain(iterator: Any) -> bool:
    """Whether it is tf.data's own iterator, rather than a distributed one or one of Python or JAX."""
    operations = sys.modules.get("tensorflow.python.data.ops.iterator_ops")
    return operations is not None and type(iterator) is operations.OwnedIterator


def _idle_pull(iterator: Any) -> Optional[float]:
    """Return the seconds that pulling an available batch from Python takes.

    None if such batches cannot be passed on, which is tested with an empty one.
    """
    import tensorflow as tf

    try:
        specs = tf.nest.flatten(iterator.element_spec)
        plain = all(type(spec) is tf.TensorSpec and spec.shape.rank is not None for spec in specs)
        if not plain or "CPU" not in iterator._iterator_resource.device:
            return None
        batch = tf.nest.pack_sequence_as(iterator.element_spec, _empty(specs))
        feed = _feed(iterator, [batch] * 4)
        times = [_timed(feed, batch) for _ in range(4)]
        alike = next(feed, None) is None and feed._type_spec == iterator._type_spec
        return min(times) if alike and next(_feed(iterator, []), None) is None else None
    except Exception:
        return None


def _timed(feed: Any, batch: Any) -> float:
    import tensorflow as tf

    began = perf_counter()
    pulled = next(feed)
    took = perf_counter() - began
    tf.nest.assert_same_structure(pulled, batch)
    return took


def _feed(like: Any, batches: List[Any]) -> Any:
    """Return an iterator of exactly these batches, of the same type as `like`: the step cannot tell them
    apart.
    """
    import tensorflow as tf
    from tensorflow.python.data.ops import iterator_ops
    from tensorflow.python.ops import gen_dataset_ops as ops

    specs = tf.nest.flatten(like.element_spec)
    kind = {"output_types": [spec.dtype for spec in specs], "output_shapes": [spec.shape for spec in specs]}
    with tf.device(like._iterator_resource.device):
        contents = [tf.nest.flatten(batch) for batch in batches] or [_empty(specs)]
        datasets = [ops.tensor_dataset(one, output_shapes=kind["output_shapes"]) for one in contents]
        joined = functools.reduce(lambda one, two: ops.concatenate_dataset(one, two, **kind), datasets)
        if not batches:
            joined = ops.take_dataset(joined, tf.constant(0, tf.int64), **kind)
        resource = ops.anonymous_iterator_v3(**kind)
        ops.make_iterator(ops.options_dataset(joined, _as_it_is(), **kind), resource)
        return iterator_ops.OwnedIterator(components=[resource], element_spec=like.element_spec)


def _empty(specs: List[Any]) -> List[Any]:
    import tensorflow as tf

    with tf.device("CPU:0"):
        return [tf.zeros([size or 0 for size in spec.shape], spec.dtype) for spec in specs]


@functools.lru_cache(maxsize=1)
def _as_it_is() -> bytes:
    """Return options that disable optimisation of a dataset, which would take most of the time."""
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    return bytes(options._to_proto().SerializeToString())
