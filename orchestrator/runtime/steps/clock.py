"""A clock for training steps, in the job's own process: how long they take and wait for input.

Keras' `fit` calls a Python function for each step, and pulls the batch inside of it, in the graph. So a
step's time is the time of that call. The wait is measured on a few steps, chosen at random: their batch is
pulled here, by the clock, from the same iterator, and handed to the unchanged step through an iterator of
that one batch. Same batches, same order, same graph, hence the same numbers. In a custom loop, pulling is a
Python call.

What tf.data itself knows of the pipeline is read between two steps, now and then (steppipeline).

Nothing is added to any graph, no random number of TensorFlow or NumPy is drawn, and what cannot be known is
left out. A clock that fails stops, and the job goes on without it.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
import threading
import weakref
from time import perf_counter
from typing import Any, Callable, Optional

from .finite import LossCheck
from .inputs import name_sources
from .log import StepLog
from .pauses import time_pauses
from .pipeline import Pipelines
from .probe import Probe, Pulled

_log: Optional[StepLog] = None
_pipelines: Optional[Pipelines] = None
_inside_fit = threading.local()


def on_tensorflow(tf: Any) -> None:
    """Time what custom loops pull from datasets, and calls of functions that were seen to train."""
    if _open() is None:
        return
    from tensorflow.python.data.ops import iterator_ops
    from tensorflow.python.eager.polymorphic_function import polymorphic_function

    iterator = iterator_ops.OwnedIterator
    iterator._next_internal = _timed_pull(tf, iterator._next_internal)
    function = polymorphic_function.Function
    function.__call__ = _timed_function(function.__call__)


def on_keras(keras: Any) -> None:
    """Time the steps of `fit` and `train_on_batch`, and count those of custom loops by their optimizer."""
    if _open() is None:
        return
    trainer = defining(keras.Model, "make_train_function")
    if trainer is not None:
        trainer.make_train_function = _timed_maker(trainer, trainer.make_train_function)
    name_sources(keras)
    time_pauses(keras, _pause)
    optimizer = defining(keras.optimizers.Optimizer, "apply")
    if optimizer is not None:
        optimizer.apply = _noticed_apply(optimizer.apply)


def flush() -> None:
    """Write what was measured so far, for processes that end without their exit handlers."""
    if _log is not None:
        _log.flush()


def _open() -> Optional[StepLog]:
    global _log, _pipelines
    if _log is None and os.environ.get("ORCH_TRACE"):
        _log = StepLog(os.environ["ORCH_TRACE"])
        _pipelines = Pipelines(_log)
        atexit.register(flush)
    return _log


def _pause(kind: str, seconds: float) -> None:
    if _log is not None:
        _log.pause(kind, seconds)


def defining(kind: type, name: str) -> Any:
    """Return the class that a method comes from; None if there is none."""
    return next((base for base in kind.__mro__ if name in vars(base)), None)


# ---------------------------------------------------------------- fit


def _timed_maker(trainer: Any, make: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `make_train_function`, whose result is then called through the clock."""

    @functools.wraps(make)
    def make_train_function(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = self.train_function
        returned = make(self, *args, **kwargs)
        made = self.train_function
        if made is None or made is before:
            return returned
        self.train_function = _timed_steps(self, made, Probe() if _may_probe(self, trainer) else None)
        return self.train_function if returned is made else returned

    return make_train_function


def _may_probe(model: Any, trainer: Any) -> bool:
    """Whether a call may be probed: only if it is known what it pulls, and never while every tensor is
    observed.
    """
    known = trainer.__module__ == "keras.src.backend.tensorflow.trainer"
    own = type(model).make_train_function is not trainer.make_train_function
    return known and not own and os.environ.get("ORCH_OBSERVE_STEPS", "0") in ("", "0")


def _timed_steps(model: Any, function: Callable[..., Any], probe: Optional[Probe]) -> Callable[..., Any]:
    """Wrap a train function; one call trains `steps_per_execution` steps."""
    counter, checked = _StepCounter(model), LossCheck()
    fed = _Fed()

    @functools.wraps(function)
    def train_function(*args: Any) -> Any:
        log = _log
        if log is None or getattr(_inside_fit, "now", False):
            return function(*args)
        most, opening = counter.start(), fed.anew(args[0] if args else None)
        _inside_fit.now = True
        began = perf_counter()
        try:
            pulled = probe.pull(args, most) if probe else Pulled(args)
            result = pulled.call(function)
        finally:
            _inside_fit.now = False
        took = perf_counter() - began
        if probe:
            probe.learn(took)
        steps = counter.done()
        log.step(
            _source(args),
            began,
            took - pulled.cost,
            steps,
            pulled.wait,
            first=counter.calls == 1,
            opening=opening,
        )
        checked.look(log, result, log.total(_source(args)))
        if _pipelines is not None:
            _pipelines.pulled(args[0] if args else None, steps, counter.model)
        return result

    return train_function


def _source(args: Any) -> str:
    """Return the source of a call's batches. `train_on_batch` passes a generator of its one batch."""
    return "batch" if args and type(args[0]).__name__ == "generator" else "fit"


class _StepCounter:
    """Count the steps of each call of a train function: the last one of an epoch may run out of batches."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self._most = 1
        self._before: Optional[int] = None
        self.calls = 0

    def start(self) -> int:
        """Return the maximum number of steps of the next call."""
        self.calls += 1
        self._most = steps_per_execution(self.model)
        self._before = self._iterations() if self._most > 1 else None
        return self._most

    def done(self) -> int:
        """Return the number of steps that it took."""
        now = self._iterations() if self._before is not None else None
        return self._most if now is None or self._before is None else max(1, now - self._before)

    def _iterations(self) -> Optional[int]:
        try:
            return int(self.model.optimizer.iterations)
        except Exception:  # no optimizer, or one of another kind
            return None


def steps_per_execution(model: Any) -> int:
    """Return the number of batches that one call of its train function takes."""
    for name in ("steps_per_execution", "_steps_per_execution"):
        try:
            return int(getattr(model, name))
        except (AttributeError, TypeError, ValueError):
            continue
    return 1


class _Fed:
    """Remember the last iterator, to recognise a new one."""

    def __init__(self) -> None:
        self._last: Callable[[], Any] = lambda: None

    def anew(self, iterator: Any) -> bool:
        same = iterator is not None and self._last() is iterator
        if not same:
            try:
                self._last = weakref.ref(iterator)
            except TypeError:  # None, or an object without weak references
                return False
        return not same


# ---------------------------------------------------------------- custom loops


def _timed_pull(tf: Any, pull: Callable[..., Any]) -> Callable[..., Any]:
    """Time pulling a batch in Python, in the thread that trains; in tf.data's own threads it is not a
    wait.
    """
    main = threading.main_thread().ident
    fed = _Fed()

    @functools.wraps(pull)
    def _next_internal(self: Any) -> Any:
        log = _log
        if log is None or threading.get_ident() != main or getattr(_inside_fit, "now", False):
            return pull(self)
        if not tf.executing_eagerly():
            return pull(self)
        began = perf_counter()
        try:
            batch = pull(self)
        finally:
            log.pull(began, perf_counter() - began, opening=fed.anew(self))
        if _pipelines is not None:  # the pull that finds the end returns no batch
            _pipelines.pulled(self, 1, None)
        return batch

    return _next_internal


class _Calls(threading.local):
    """The outermost tf.function that this thread is calling, and whether it was seen to train."""

    outermost: Any = None
    applying: bool = False


_calls = _Calls()


def _timed_function(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        log = _log
        if log is None or _calls.outermost is not None or getattr(_inside_fit, "now", False):
            return call(self, *args, **kwargs)
        _calls.outermost = self
        known = getattr(self, "_orch_trains", False)
        began = perf_counter()
        try:
            result = call(self, *args, **kwargs)
        finally:
            _calls.outermost = None
        if getattr(self, "_orch_trains", False):
            log.step("function", began, perf_counter() - began, 1, None, first=not known)
        return result

    return __call__


def _noticed_apply(apply: Callable[..., Any]) -> Callable[..., Any]:
    """Note an optimizer's update: a step of an eager loop, or the trace of a function that is one."""

    @functools.wraps(apply)
    def outer_apply(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _log is None or _calls.applying or getattr(_inside_fit, "now", False):
            return apply(self, *args, **kwargs)
        _calls.applying = True
        try:
            result = apply(self, *args, **kwargs)
        finally:
            _calls.applying = False
        _notice_step(_log)
        return result

    return outer_apply


def _notice_step(log: StepLog) -> None:
    tf = sys.modules.get("tensorflow")
    if tf is None:
        return
    if tf.executing_eagerly():
        log.step("eager", perf_counter(), None, 1, None)
    elif _calls.outermost is not None:
        # In a loop inside the graph, one call can be any number of steps, which is unknown here.
        _calls.outermost._orch_trains = not _in_a_loop(tf)


def _in_a_loop(tf: Any) -> bool:
    graph = tf.compat.v1.get_default_graph()
    while graph is not None:
        if "body" in getattr(graph, "name", ""):
            return True
        graph = getattr(graph, "outer_graph", None)
    return False
