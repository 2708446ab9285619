"""Measure, in a scratch run, what a training step takes at several batch sizes; then the process ends.

The program is unchanged. It runs up to its first training step; that step is then repeated with batches of
other sizes, made from the program's own (see batch). If a function trains, a `fit` or a tf.function, it is
called from here. If Python code trains, its own loop continues and gets other batches. Whatever the program
would do afterwards is not done.

The options are in ORCH_SIZE, a JSON object of course.Options; the result is the file that it names.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import sys
import threading
import weakref
from typing import Any, Callable, Dict, Generator, List, Optional, Set

from .. import guard
from ..leaving import exit_early
from ..steps.clock import defining, steps_per_execution
from ..steps.inputs import name_sources, one_thread
from . import batch as batches
from .course import Course, Options
from .meter import Meter, available, resident_bytes
from .pipeline import measure as measure_pipeline
from .result import Result
from .state import describe, models_alive
from .step import FunctionStep, train_function_step

Steps = List[Callable[[int], Callable[[], Any]]]
"""Consecutive steps; each is prepared for a number of examples, and then called."""


def from_environment(environ: Any) -> Optional[Sizing]:
    """Return the sizing that the environment requests; None if it requests none."""
    text = environ.get("ORCH_SIZE", "")
    return Sizing(Options(**json.loads(text))) if text else None


class Sizing:
    """The sizing of one process. The import hook notifies it of imported frameworks."""

    def __init__(self, wish: Options) -> None:
        self._wish = wish
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._result = Result(wish.out)
        self._course = Course(wish, available, self._result.save)
        self._result.of(self._course)
        self._meter: Optional[Meter] = None
        self._measuring = False
        self._optimizers: List[Any] = []
        self._functions: List[FunctionStep] = []
        self._calling = threading.local()
        self._iterator: Callable[[], Any] = lambda: None
        self._eager: Any = None
        self._eager_steps = 0
        self._keras: Any = None
        self._kerases: Set[str] = set()
        atexit.register(self._at_exit)

    # ------------------------------------------------------------ hooks

    def on_tensorflow(self, tf: Any) -> None:
        """Called when TensorFlow has been imported."""
        if self._meter is not None:
            return
        from tensorflow.python.data.ops import iterator_ops
        from tensorflow.python.eager.polymorphic_function import polymorphic_function

        self._tf = tf
        guard.watch_tensorflow()
        self._result.facts["modules"].append("tensorflow")
        self._result.save()
        function, iterator = polymorphic_function.Function, iterator_ops.OwnedIterator
        function.__call__ = self._watched_call(function.__call__)
        iterator._next_internal = self._watched_pull(iterator._next_internal)
        tf.GradientTape.gradient = self._watched_gradient(tf.GradientTape.gradient)

    def on_keras(self, keras: Any) -> None:
        """Called when a Keras has been imported."""
        if keras.__name__ in self._kerases:
            return
        self._kerases.add(keras.__name__)
        guard.watch_hdf5()
        name_sources(keras)
        self._keras = keras
        trainer = defining(keras.Model, "make_train_function")
        if trainer is not None:
            trainer.make_train_function = self._watched_maker(trainer.make_train_function)
        for name in ("apply", "apply_gradients"):
            owner = defining(keras.optimizers.Optimizer, name)
            if owner is not None:
                setattr(owner, name, self._watched_apply(getattr(owner, name)))
                break

    def _watched_maker(self, make: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(make)
        def make_train_function(model: Any, *args: Any, **kwargs: Any) -> Any:
            before = model.train_function
            returned = make(model, *args, **kwargs)
            made = model.train_function
            if made is None or made is before:
                return returned

            def train_function(iterator: Any) -> Any:
                return self._fit(model, made, iterator)

            model.train_function = train_function
            return train_function if returned is made else returned

        return make_train_function

    def _watched_call(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def __call__(function: Any, *args: Any, **kwargs: Any) -> Any:
            if self._measuring or getattr(self._calling, "function", None) is not None or not self._ours():
                return call(function, *args, **kwargs)
            if any(step.function is function for step in self._functions):
                self._all_functions()
            step = FunctionStep(function, call, args, kwargs)
            self._calling.function, self._calling.trains = function, False
            try:
                result = step.first()
            finally:
                self._calling.function = None
            if self._calling.trains:
                self._functions.append(step)
            return result

        return __call__

    def _watched_gradient(self, gradient: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(gradient)
        def watched(*args: Any, **kwargs: Any) -> Any:
            self._calling.trains = True
            return gradient(*args, **kwargs)

        return watched

    def _watched_apply(self, apply: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(apply)
        def watched(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            result = apply(optimizer, *args, **kwargs)
            if not any(optimizer is known for known in self._optimizers):
                self._optimizers.append(optimizer)
            self._calling.trains = True
            if self._tf.executing_eagerly() and not self._measuring:
                self._eager_steps += 1
            return result

        return watched

    def _watched_pull(self, pull: Callable[..., Any]) -> Callable[..., Any]:
        main = threading.main_thread().ident

        @functools.wraps(pull)
        def _next_internal(iterator: Any) -> Any:
            if self._measuring or threading.get_ident() != main or not self._tf.executing_eagerly():
                return pull(iterator)
            if not self._ours():
                return pull(iterator)
            self._iterator = weakref.ref(iterator)
            if not self._eager_steps or self._functions:
                return pull(iterator)
            return self._next_of_loop(lambda: pull(iterator))

        return _next_internal

    # ------------------------------------------------------------ the three ways of training

    def _fit(self, model: Any, function: Callable[..., Any], iterator: Any) -> Any:
        if self._measuring or not self._ours():
            return function(iterator)
        self._measuring = True
        with self._lock:
            try:
                batch = next(iterator)
                step = train_function_step(function, iterator, batch, steps_per_execution(model))
                optimizers = [model.optimizer]
                facts = {
                    "kind": "fit",
                    "xla": bool(getattr(model, "jit_compile", False)),
                    "policy": str(getattr(getattr(model, "dtype_policy", None), "name", "float32")),
                }
                self._begin(facts, batch)
                self._pipeline(lambda: next(iterator), iterator)
                self._drive([step])
                self._state([model], optimizers, [])
            finally:
                self._end()

    def _all_functions(self) -> None:
        """After one round of the loop has shown every function that trains: repeat them."""
        self._measuring = True
        with self._lock:
            try:
                batch = self._functions[0].batch()
                xla = any(getattr(step.function, "_jit_compile", None) for step in self._functions)
                self._begin({"kind": "function", "xla": xla, "functions": len(self._functions)}, batch)
                iterator = self._iterator()
                if iterator is not None:
                    self._pipeline(lambda: next(iterator), iterator)
                self._drive([step.call for step in self._functions])
                variables = [v for step in self._functions for v in step.variables()]
                self._state(self._models(), self._optimizers, variables)
            finally:
                self._end()

    def _drive(self, steps: Steps) -> None:
        """Run the steps that the course requests; if one fails, those of the program's own size."""
        own = self._result.facts["own_batch"]
        if not self._made(steps, self._course.run(own)) and not self._course.sizes:
            self._made(steps, self._course.only(own))

    def _made(self, steps: Steps, course: Generator[int, Dict[str, Any], None]) -> bool:
        """Whether all steps succeeded."""
        assert self._meter is not None
        rows = next(course, None)
        while rows is not None:
            try:
                took = [self._meter.measure(step(rows)) for step in steps]
            except Exception as error:  # the program does not accept this size, or memory was too small
                self._course.failed(rows, error)
                return False
            try:
                rows = course.send(_together(took))
            except StopIteration:
                rows = None
        return True

    def _next_of_loop(self, pull: Callable[[], Any]) -> Any:
        """Return a batch for a loop in Python. The step before it is over."""
        if self._eager is None:
            self._first_of_loop(pull)
        assert self._meter is not None
        course, batch, rows = self._eager
        try:
            rows = course.send(self._meter.end()) if rows is not None else next(course)
        except StopIteration:
            self._state(self._models(), self._optimizers, [])
            self._end()
        self._eager = (course, batch, rows)
        given = batches.resized(batch, rows)
        self._meter.begin()
        return given

    def _first_of_loop(self, pull: Callable[[], Any]) -> None:
        batch = pull()
        self._begin({"kind": "eager", "xla": False}, batch)
        self._state(self._models(), self._optimizers, [])
        self._pipeline(pull, self._iterator())
        self._eager = (self._course.run(self._result.facts["own_batch"]), batch, None)

    # ------------------------------------------------------------ what is written

    def _begin(self, facts: Dict[str, Any], batch: Any) -> None:
        self._result.claim()
        tf = self._tf
        base = resident_bytes()
        meter = self._meter = Meter(tf)
        meter.spread()
        self._result.facts.update(
            {
                "end": "began",
                "device": meter.name(),
                "counted": meter.counts,
                "tensorflow": tf.__version__,
                "keras": getattr(self._keras, "__version__", None),
                "policy": self._policy(),
                "base_rss": base,
                "memory_here": available(),
                **facts,
            }
        )
        self._result.save()
        rows = batches.rows_of(batch)
        if rows is None:
            raise batches.NoBatch("what its steps are given holds no batch of arrays")
        self._result.facts["own_batch"] = rows
        self._result.facts["batch_bytes"] = batches.bytes_of(batch)

    def _pipeline(self, pull: Callable[[], Any], iterator: Any) -> None:
        found = measure_pipeline(pull)
        if found is not None:
            found["one_thread"] = one_thread(getattr(iterator, "_dataset", None))
        self._result.facts["pipeline"] = found
        self._result.save()

    def _state(self, models: List[Any], optimizers: List[Any], variables: List[Any]) -> None:
        self._result.facts["optimizer"] = type(optimizers[0]).__name__ if optimizers else None
        self._result.facts["state"] = describe(models, optimizers, variables)

    def _models(self) -> List[Any]:
        return models_alive(self._keras) if self._keras is not None else []

    def _policy(self) -> str:
        try:
            return str(self._keras.mixed_precision.dtype_policy().name)
        except Exception:
            return "float32"

    def _ours(self) -> bool:
        """Whether this is neither a forked child nor beside another process that is measured."""
        return os.getpid() == self._pid and not self._result.claimed_elsewhere()

    def _end(self) -> None:
        """Write the result, and end the process: the rest of the program is not wanted."""
        error = sys.exc_info()[1]
        if isinstance(error, batches.NoBatch):
            self._result.facts["end"] = "no batch"
            self._result.facts["detail"] = str(error)
        elif error is not None and not isinstance(error, StopIteration):
            self._result.facts["end"] = "failed"
            self._result.facts["detail"] = f"{type(error).__name__}: {error}"[:500]
        else:
            self._result.facts["end"] = "done"
        self._result.save()
        exit_early()

    def _at_exit(self) -> None:
        """Handle a program that ended by itself: one step may have been its only one."""
        if self._functions and not self._measuring and self._ours():
            self._all_functions()
        if self._result.facts["modules"] and self._ours():
            self._result.save()


def _together(took: List[Dict[str, Any]]) -> Dict[str, Any]:
    """Combine consecutive steps: the highest peak, and the sum of times."""
    if len(took) == 1:
        return took[0]
    peaks = [each["peak"] for each in took if each["peak"] is not None]
    return {
        "peak": max(peaks) if peaks else None,
        "before": took[0]["before"],
        "rss": max(each["rss"] for each in took),
        "seconds": sum(each["seconds"] for each in took),
        "cpu": sum(each["cpu"] for each in took),
    }
