"""Keras 3 on JAX or torch: observe each step of `fit` and `train_on_batch` from outside the compiled code.

Recorded are a step's batch, the weights and slots before the first one, its loss, and the new weights and
slots; neither layers' outputs nor gradients. Steps of training loops that a program writes itself are not
observed.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Iterable, List, Tuple

from .digest import flatten
from .facts import Facts
from .kerases import owner_of
from .recorder import Label, Recorder
from .variables import named

Pairs = List[Tuple[str, Any]]


class Outside:
    """Observes the step functions of one Keras whose backend is not TensorFlow."""

    def __init__(self, keras: Any, recorder: Recorder, facts: Facts) -> None:
        self._array = keras.ops.convert_to_numpy
        self._model = keras.Model
        self._recorder = recorder
        self._facts = facts
        self._making: Any = None
        self._order = 0

    def install(self) -> bool:
        """Observe every model's step function from its creation on. Returns False if this version's interface
        is unknown."""
        trainer = owner_of(self._model, "make_train_function")
        functional = hasattr(self._model, "_make_function")  # JAX: a step maps the state to a new one
        if not functional and trainer.__module__ != "keras.src.backend.torch.trainer":
            return False
        trainer.make_train_function = self._maker(trainer.make_train_function, functional)
        if functional:
            owner = owner_of(self._model, "_make_function")
            owner._make_function = self._wrapper(owner._make_function)
        return True

    # ------------------------------------------------------------ creating step functions

    def _maker(self, make: Callable[..., Any], functional: bool) -> Callable[..., Any]:
        @functools.wraps(make)
        def make_train_function(model: Any, *args: Any, **kwargs: Any) -> Any:
            before = model.train_function
            if not self._recorder.wants():
                return make(model, *args, **kwargs)
            self._try("reading how a model was compiled", lambda: self._facts.add_model(model))
            self._making = model
            try:
                made = make(model, *args, **kwargs)
            finally:
                self._making = None
            if not functional and model.train_function is not before:
                model.train_function = self._eager(model, model.train_function)
            return made

        return make_train_function

    def _wrapper(self, make: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap JAX's conversion of a step's function to that of a call, which makes one or several steps."""

        @functools.wraps(make)
        def _make_function(model: Any, step: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            watched = self._functional(model, step) if self._making is model else step
            return make(model, watched, *args, **kwargs)

        return _make_function

    # ------------------------------------------------------------ steps

    def _functional(self, model: Any, step: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a step of JAX: `step(state, data)` returns logs and the new state; the old one is invalid
        afterwards."""

        @functools.wraps(step)
        def watched(state: Any, data: Any) -> Any:
            if not self._recorder.wants():
                return step(state, data)
            self._try("reading a step's input", lambda: self._begin(model, data, _named(model, state)))
            logs, state = step(state, data)
            self._try("reading a step", lambda: self._end(logs, _named(model, state)))
            return logs, state

        return watched

    def _eager(self, model: Any, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a step of torch: `function([data])` changes the variables and returns logs."""

        @functools.wraps(function)
        def watched(data: Any) -> Any:
            if not self._recorder.wants():
                return function(data)
            self._try("reading a step's input", lambda: self._begin(model, data[0], _held(model)))
            logs = function(data)
            self._try("reading a step", lambda: self._end(logs, _held(model)))
            return logs

        return watched

    def _begin(self, model: Any, data: Any, state: Tuple[Pairs, Pairs]) -> None:
        self._facts.before_first_step()
        self._facts.add_optimizer(model.optimizer)
        self._show("batch", [(f"data/{path}" if path else "data", leaf) for path, leaf in flatten(data)])
        if not self._recorder.steps:
            self._show("initial", [pair for pairs in state for pair in pairs])

    def _end(self, logs: Any, state: Tuple[Pairs, Pairs]) -> None:
        reported = flatten(logs)
        self._show("loss", [(name or "loss", value) for name, value in reported if name in ("", "loss")])
        weights, slots = state
        self._show("update", weights)
        self._show("update", slots, light=False)
        self._show("metrics", [(name, value) for name, value in reported if name not in ("", "loss")])
        self._recorder.commit()

    def _show(self, stage: str, pairs: Iterable[Tuple[str, Any]], *, light: bool = True) -> None:
        labels, arrays = [], []
        for name, value in pairs:
            self._order += 1
            label = Label(stage, name, self._order, light)
            if value is not None and self._recorder.takes(label):
                labels.append(label)
                arrays.append(self._array(value))
        self._recorder.observe(labels, arrays)

    def _try(self, what: str, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:
            self._recorder.fail(what, error)


def _named(model: Any, state: Any) -> Tuple[Pairs, Pairs]:
    """Return weights and slots of JAX's state, as (name, value). Metrics, its last part, are left out."""
    trained, rest, slots = state[:3]
    return _pairs(_weights(model), [*trained, *rest]), _pairs(model.optimizer.variables, slots)


def _held(model: Any) -> Tuple[Pairs, Pairs]:
    """Return weights and slots as the variables hold them."""
    weights, slots = _weights(model), model.optimizer.variables
    return _pairs(weights, [v.value for v in weights]), _pairs(slots, [v.value for v in slots])


def _weights(model: Any) -> List[Any]:
    """Return the weights in the order of JAX's state."""
    return [*model.trainable_variables, *model.non_trainable_variables]


def _pairs(variables: Iterable[Any], values: Iterable[Any]) -> Pairs:
    return [(name, value) for (name, _), value in zip(named(variables), values)]  # noqa: B905
