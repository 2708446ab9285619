"""Feed an unmodified training with other inputs, to measure the cost of its own: a scratch run that ends
afterwards.

It is requested by a plan's "feed": {result (a file), trace_folder, seconds, rounds, try, trace, staging,
budget, …}. From the second step, the training gets its batches from orch: one batch repeatedly, batches held
in memory, its own pipeline with its files in the page cache and out of it, and, with "try", pipelines with a
fix. Under `fit` the step is the function that Keras created; in a loop it is whatever the script does between
two batches. Nothing of the model is kept: when all is measured, the result is written and the process ends.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import sys
import threading
import traceback
from typing import Any, Callable, Dict, List, Mapping, Optional

from .. import guard
from ..leaving import exit_early
from ..observe import inputs
from ..steps.clock import steps_per_execution
from ..steps.inputs import name_sources, source_of
from ..steps.probe import is_plain
from . import calls as feeding_calls
from .files import Known
from .measure import Measurement, unmeasured
from .shim import begin_again

Plan = Mapping[str, Any]

_BEGIN = 2
"""Which step of a kind is the first that is fed: in the first one, graphs are traced."""


def install(plan: Plan) -> InputSubstitution:
    """Return the listeners that must be notified of imported frameworks, to feed this process's training."""
    refused = begin_again(str(plan["files"])) if plan.get("files") else None
    os.environ.pop("ORCH_TRACE", None)  # the step clock would measure us
    feeding = InputSubstitution(plan, [f"Reads are not counted: {refused}."] if refused else [])
    feeding.known.listen()
    return feeding


class InputSubstitution:
    """One process's training and its measurement."""

    def __init__(self, plan: Plan, notes: List[str]) -> None:
        self._plan = plan
        self._notes = notes
        self._pid = os.getpid()
        self.known = Known([plan["result"], plan.get("trace_folder") or ""])
        self._local = threading.local()
        self._main = threading.main_thread().ident
        self._measurement: Optional[Measurement] = None
        self._drive: Any = None
        self._calls: Dict[int, int] = {}
        self._latest: Any = None
        self._fed: Any = None
        self._steps = 0
        self._singles = False
        self._tf: Any = None

    # ------------------------------------------------------------ hooks

    def on_tensorflow(self, tf: Any) -> None:
        """Record how pipelines are built, what loops pull, and what trains."""
        if self._tf is not None:
            return
        self._tf = tf
        guard.watch_tensorflow()
        feeding_calls.record(tf)
        inputs.watch(tf, self.known, lambda: True)  # type: ignore[arg-type]
        from tensorflow.python.data.ops import iterator_ops
        from tensorflow.python.eager.polymorphic_function import polymorphic_function

        iterator = iterator_ops.OwnedIterator
        self._pull = iterator._next_internal
        iterator._next_internal = self._fed_pull(iterator._next_internal)
        tape = tf.GradientTape
        tape.gradient = self._noticed(tape.gradient)
        function = polymorphic_function.Function
        function.__call__ = self._watched(function.__call__)

    def on_keras(self, keras: Any) -> None:
        """Replace the function that `fit` calls."""
        guard.watch_hdf5()
        name_sources(keras)
        trainer = next((base for base in keras.Model.__mro__ if "make_train_function" in vars(base)), None)
        if trainer is not None:
            trainer.make_train_function = self._fed_maker(trainer.make_train_function)

    # ------------------------------------------------------------ fit

    def _fed_maker(self, make: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(make)
        def make_train_function(model: Any, *args: Any, **kwargs: Any) -> Any:
            before = model.train_function
            returned = make(model, *args, **kwargs)
            made = model.train_function
            if made is None or made is before or getattr(made, "_orch_fed", False):
                return returned
            model.train_function = self._fed_steps(model, made)
            return model.train_function if returned is made else returned

        return make_train_function

    def _fed_steps(self, model: Any, function: Callable[..., Any]) -> Callable[..., Any]:
        calls = [0]

        @functools.wraps(function)
        def train_function(*args: Any) -> Any:
            calls[0] += 1
            self._local.inside = True
            try:
                if calls[0] >= _BEGIN and len(args) == 1 and self._ours():
                    self._measure_fit(model, function, args[0])
                return function(*args)
            finally:
                self._local.inside = False

        train_function._orch_fed = True  # type: ignore[attr-defined]
        return train_function

    def _measure_fit(self, model: Any, function: Callable[..., Any], iterator: Any) -> None:
        """Measure, then end the process; returns only if such a batch cannot be fed."""
        if not hasattr(iterator, "__next__"):
            return
        dataset = self._dataset_of(iterator)
        if dataset is None:
            return
        drive = self._begin(dataset, "fit", steps_per_execution(model))
        try:
            fed = next(drive)
            while True:
                fed = drive.send(self._stepped(function, fed))
        except StopIteration:
            self._end()
        except BaseException as error:
            self._fail(error)

    def _stepped(self, function: Callable[..., Any], iterator: Any) -> bool:
        try:
            function(iterator)
        except (StopIteration, self._tf.errors.OutOfRangeError):
            return False
        return True

    # ------------------------------------------------------------ loops

    def _fed_pull(self, pull: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(pull)
        def _next_internal(iterator: Any) -> Any:
            outside = threading.get_ident() == self._main and not getattr(self._local, "inside", False)
            if not outside or not self._tf.executing_eagerly() or not self._ours():
                return pull(iterator)
            return self._pulled(pull, iterator)

        return _next_internal

    def _pulled(self, pull: Callable[..., Any], iterator: Any) -> Any:
        """Return a batch for a loop: its own until it is seen to train on this iterator, then one of ours."""
        if self._fed is not None:
            return self._advance(pull, True) if iterator is self._fed else pull(iterator)
        trained, self._steps = self._steps, 0
        same, self._latest = self._latest is iterator, iterator
        count = self._calls[id(iterator)] = self._calls.get(id(iterator), 0) + bool(trained and same)
        dataset = self._dataset_of(iterator) if count >= _BEGIN else None
        if dataset is None:
            return pull(iterator)
        self._drive, self._fed = self._begin(dataset, "loop", 1), iterator
        return self._advance(pull, None)

    def _advance(self, pull: Callable[..., Any], made: Optional[bool]) -> Any:
        """Return the next batch on which the measurement lets the loop train."""
        self._local.inside = True
        try:
            while True:
                fed = self._drive.send(made)
                try:
                    return pull(fed)
                except (StopIteration, self._tf.errors.OutOfRangeError):
                    made = False
        except StopIteration:
            self._end()
        except BaseException as error:
            self._fail(error)
        finally:
            self._local.inside = False

    def _noticed(self, gradient: Callable[..., Any]) -> Callable[..., Any]:
        """Note that gradients are computed: a step of an eager loop, or its trace."""

        @functools.wraps(gradient)
        def noticed(tape: Any, *args: Any, **kwargs: Any) -> Any:
            outermost = getattr(self._local, "function", None)
            if self._tf.executing_eagerly():
                self._steps += 1
            elif outermost is not None:
                outermost._orch_takes_gradients = True
            return gradient(tape, *args, **kwargs)

        noticed.autograph_info__ = {}  # type: ignore[attr-defined]
        return noticed

    def _watched(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def __call__(function: Any, *args: Any, **kwargs: Any) -> Any:
            if getattr(self._local, "function", None) is not None:
                return call(function, *args, **kwargs)
            self._local.function = function
            try:
                return call(function, *args, **kwargs)
            finally:
                self._local.function = None
                self._steps += bool(getattr(function, "_orch_takes_gradients", False))

        return __call__

    # ------------------------------------------------------------ both

    def _ours(self) -> bool:
        """Whether this process is the original one and has not finished."""
        return os.getpid() == self._pid

    def _dataset_of(self, iterator: Any) -> Any:
        """Return the dataset behind the training's iterator; ends the process if there is none to measure."""
        dataset = getattr(iterator, "_dataset", None)
        if is_plain(iterator) and dataset is not None:
            return dataset
        kind = type(iterator).__name__
        if kind != "generator":
            self._write(unmeasured(f"the training pulls from a {kind}, not from a tf.data pipeline"))
            exit_early()
        self._single()
        return None

    def _single(self) -> None:
        """Note that `train_on_batch` passes one batch at a time; reported unless more is fed later."""
        if not self._singles:
            atexit.register(self._only_singles)
        self._singles = True

    def _only_singles(self) -> None:
        if self._measurement is None and self._ours():
            self._write(
                unmeasured(
                    "the script makes its batches by itself, and hands them over one by one (train_on_batch)"
                )
            )

    def _begin(self, dataset: Any, loop: str, per_call: int) -> Any:
        self._local.inside = True
        self._measurement = Measurement(self._plan, dataset, self.known, _say)
        self._measurement.result["notes"] += self._notes
        self._measurement.result.update(
            loop=loop,
            source=source_of(dataset),
            steps_per_call=per_call,
            tensorflow=str(self._tf.__version__),
            cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            gpus=len(self._tf.config.list_logical_devices("GPU")),
        )
        return self._measurement.steps()

    def _end(self) -> None:
        assert self._measurement is not None
        self._write(self._measurement.result)
        exit_early()

    def _fail(self, error: BaseException) -> None:
        """Report what stopped the measurement; what was measured before is kept."""
        traceback.print_exc()
        result = self._measurement.result if self._measurement else unmeasured("")
        result["notes"].append(f"The measurement was stopped by {type(error).__name__}: {error}"[:400])
        self._write(result)
        exit_early()

    def _write(self, result: Dict[str, Any]) -> None:
        path = str(self._plan["result"])
        part = f"{path}.part"
        with open(part, "w", encoding="utf-8") as file:
            json.dump(result, file)
        os.replace(part, path)  # noqa: PTH105


def _say(text: str) -> None:
    print(f"orch: {text}", file=sys.stderr, flush=True)
