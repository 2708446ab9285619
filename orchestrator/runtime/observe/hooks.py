"""The places in TensorFlow and Keras where a training step can be observed, for Keras 3 and tf-keras 2.

Hooks are installed on classes, once, before the first function is traced; after the last observed step each
costs one test. An error in a hook ends observation, never the job.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, List, Optional

from . import inputs
from .channel import Channel
from .digest import flatten
from .facts import Facts
from .files import Files
from .kerases import (
    in_order,
    is_symbolic,
    optimizer_methods,
    owner_of,
    reported_by,
    slots_of,
    state_of,
    steps_of_a_call,
    trained_by,
)
from .replicas import Replicas
from .variables import as_array, named


class Hooks:
    """Observe gradient tapes and iterators of TensorFlow, and layers, losses and optimizers of Keras."""

    def __init__(self, channel: Channel, facts: Facts, files: Files) -> None:
        self.channel = channel
        self.imposed = channel.imposed
        self.files = files
        self.recorder = channel.recorder
        self.facts = facts
        self.local = channel.local
        self._element: Any = None
        self._latest_model: Any = None
        self._compiled = False

    # ------------------------------------------------------------ installing

    def on_tensorflow(self, tf: Any) -> None:
        """Observe gradient tapes and eager iteration over datasets."""
        self._wrap(tf.GradientTape, "__enter__", self._tape_enter)
        self._wrap(tf.GradientTape, "__exit__", self._tape_exit)
        self._wrap(tf.GradientTape, "gradient", self._gradient)
        from tensorflow.python.data.ops.iterator_ops import OwnedIterator
        from tensorflow.python.framework import func_graph

        self._wrap(OwnedIterator, "__next__", self._next)
        self._wrap(OwnedIterator, "get_next", self._get_next)
        self._wrap(OwnedIterator, "__init__", self._iterate)
        traced = type(tf.function(_nothing))
        if hasattr(traced, "_initialize_uninitialized_variables"):
            self._wrap(traced, "_initialize_uninitialized_variables", self._give_values)
        self._wrap(
            owner_of(tf.distribute.Strategy, "run"), "run", Replicas(self.channel, self.facts, self._keep).run
        )
        inputs.watch(tf, self.files, self.recorder.wants)
        func_graph.func_graph_from_py_func = self._tracing(func_graph.func_graph_from_py_func)
        self.recorder.missing_batch = self._element_entries
        self.recorder.release = self._release

    def on_keras(self, keras: Any) -> None:
        """Watch layers, losses, models and optimizers of one Keras."""
        layer = keras.layers.Layer
        self._wrap(owner_of(layer, "__call__"), "__call__", self._layer_call)
        self._wrap(owner_of(layer, "_maybe_build"), "_maybe_build", self._layer_build)
        self._wrap(owner_of(keras.losses.Loss, "__call__"), "__call__", self._loss_call)
        self._wrap(owner_of(keras.Model, "make_train_function"), "make_train_function", self._make_train)
        for optimizer, method in optimizer_methods(keras):
            self._wrap(optimizer, method, self._apply)
        if hasattr(keras.optimizers.Optimizer, "_backend_update_step"):
            owner = owner_of(keras.optimizers.Optimizer, "_backend_update_step")
            self._wrap(owner, "_backend_update_step", self._before_update)
        if hasattr(getattr(keras.optimizers, "LossScaleOptimizer", None), "scale_loss"):
            self._wrap(keras.optimizers.LossScaleOptimizer, "scale_loss", self._before_update)

    def _release(self) -> None:
        self.channel.close()
        self._latest_model = self._element = None

    def _wrap(self, owner: Any, method: str, hook: Callable[..., Any]) -> None:
        original = getattr(owner, method)

        @functools.wraps(original)
        def hooked(subject: Any, *args: Any, **kwargs: Any) -> Any:
            if not self.recorder.wants():
                return original(subject, *args, **kwargs)
            return hook(functools.partial(original, subject), subject, *args, **kwargs)

        # AutoGraph must neither convert this function nor stop converting what it calls.
        hooked.autograph_info__ = {}  # type: ignore[attr-defined]
        setattr(owner, method, hooked)

    def _tracing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap the only function of TensorFlow that builds graphs, to act when a graph is complete."""

        @functools.wraps(original)
        def func_graph_from_py_func(name: Any, python_func: Any, *args: Any, **kwargs: Any) -> Any:
            if not self.recorder.wants():
                return original(name, python_func, *args, **kwargs)

            def whole(*arguments: Any, **keywords: Any) -> Any:
                result = python_func(*arguments, **keywords)
                self._try("reading at a graph's end", self.channel.graph_ends)
                return result

            return original(name, whole, *args, **kwargs)

        return func_graph_from_py_func

    def _try(self, what: str, act: Callable[..., Any], *args: Any) -> None:
        try:
            act(*args)
        except Exception as error:
            self.recorder.fail(what, error)

    def _give_values(self, original: Any, _function: Any, *args: Any, **kwargs: Any) -> Any:
        """Record initial weights once a traced function has initialised the variables that it created."""
        result = original(*args, **kwargs)
        self._try("reading initial weights", self.channel.initialised)
        return result

    # ------------------------------------------------------------ tapes and iterators

    def _tape_enter(self, original: Any, _tape: Any) -> Any:
        self._try("reading random states", self.facts.before_first_step)
        self._tapes().append(self._place())
        return original()

    def _tape_exit(self, original: Any, _tape: Any, *error: Any) -> Any:
        if self._tapes():
            self._tapes().pop()
        return original(*error)

    def _gradient(
        self, original: Any, _tape: Any, target: Any, sources: Any, *args: Any, **kwargs: Any
    ) -> Any:
        self._try("reading initial weights", self._initial_sources, sources)
        gradients = original(target, sources, *args, **kwargs)
        self._try("reading gradients", self._show_gradients, target, sources, gradients)
        return gradients

    def _initial_sources(self, sources: Any) -> None:
        flat = self.channel.tf.nest.flatten(sources)
        self.channel.initial(named([source for source in flat if hasattr(source, "assign")]))

    def _show_gradients(self, target: Any, sources: Any, gradients: Any) -> None:
        tf = self.channel.tf
        self.channel.offer("loss", "loss", tf.nest.flatten(target))
        paired = zip(tf.nest.flatten(sources), in_order(gradients))  # noqa: B905
        for source, gradient in paired:
            if gradient is not None:
                name = named([source])[0][0] if hasattr(source, "assign") else "tensor"
                self.channel.offer("gradient", name, [gradient])

    def _next(self, original: Any, _iterator: Any) -> Any:
        element = original()
        if self.channel.tf.executing_eagerly():
            try:
                element = self.imposed.element(element, self.recorder.steps + 1)
            except Exception as error:
                self.recorder.fail("imposing a batch", error)
            self._element = element
        else:
            self._try("reading a batch", self._offer_structure, "element", element)
        return element

    def _iterate(self, original: Any, _iterator: Any, *args: Any, **kwargs: Any) -> Any:
        dataset = args[0] if args else kwargs.get("dataset")
        if dataset is not None and self.channel.tf.executing_eagerly():
            self._try("reading a dataset's options", self.facts.add_dataset, dataset)
        return original(*args, **kwargs)

    def _keep(self, element: Any) -> None:
        self._element = element

    def _element_entries(self) -> List[Any]:
        """Return the element that an eager loop fetched last, with labels: its step's input."""
        from .recorder import Label

        element, self._element = self._element, None
        if element is None:
            return []
        leaves = self.channel.leaves("element", element)
        return [(Label("batch", name, i), as_array(value)) for i, (name, value) in enumerate(leaves)]

    # ------------------------------------------------------------ Keras

    def _layer_call(self, original: Any, layer: Any, *args: Any, **kwargs: Any) -> Any:
        if not self._tapes() or is_symbolic():
            return original(*args, **kwargs)
        outermost = not self._layers()
        place = self._place()
        if outermost:
            self._latest_model = layer
            args = self._imposed(["input"], args)
            self._try("reading a model's input", self._show_input, layer, args)
        self._layers().append(place)
        try:
            output = original(*args, **kwargs)
        finally:
            self._layers().pop()
        self._try("reading a layer's output", self._show_output, layer, output)
        return output

    def _show_input(self, layer: Any, args: Any) -> None:
        self.channel.initial(named(state_of(layer)))
        if args:
            self._offer_structure("input", args[0])

    def _show_output(self, layer: Any, output: Any) -> None:
        path = getattr(layer, "path", None) or layer.name
        self.channel.offer("activation", str(path), [output])

    def _layer_build(self, original: Any, layer: Any, *args: Any, **kwargs: Any) -> Any:
        was_built = bool(getattr(layer, "built", False))
        result = original(*args, **kwargs)
        if not was_built and self._tapes() and not is_symbolic():
            self._try("reading initial weights", lambda: self.channel.initial(named(state_of(layer))))
        return result

    def _loss_call(self, original: Any, _loss: Any, *args: Any, **kwargs: Any) -> Any:
        outermost = not getattr(self.local, "in_loss", False) and not getattr(self.local, "in_train", False)
        if outermost and self._tapes() and not is_symbolic():
            args = self._imposed(["labels/y_true"], args)
            self._try("reading a loss", self.facts.add_loss, _loss)
            self._try("reading labels", self._show_labels, args, kwargs)
        before, self.local.in_loss = getattr(self.local, "in_loss", False), True
        try:
            return original(*args, **kwargs)
        finally:
            self.local.in_loss = before

    def _imposed(self, names: List[str], args: Any) -> Any:
        """Return the first arguments as another run had them, if requested."""
        try:
            steps = lambda: self.recorder.steps + 1  # noqa: E731
            given = [self.imposed.used(name, arg, steps) for name, arg in zip(names, args)]  # noqa: B905
        except Exception as error:
            self.recorder.fail("imposing a batch", error)
            return args
        return (*given, *args[len(given) :])

    def _show_labels(self, args: Any, kwargs: Any) -> None:
        given = zip(("y_true", "y_pred", "sample_weight"), args)  # noqa: B905
        values = dict(given, **kwargs)
        for name in ("y_true", "sample_weight"):
            if values.get(name) is not None:
                self._offer_structure(f"labels/{name}", values[name])

    def _make_train(self, original: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
        self._try("reading how a model was compiled", self.facts.add_model, model)
        self._try("watching train_step", self._watch_train_step, model)
        made = original(*args, **kwargs)
        self._try("watching a model's training", self._watch_train_function, model)
        return made if made is None else model.__dict__.get("train_function", made)

    def _watch_train_step(self, model: Any) -> None:
        if "train_step" in model.__dict__:
            return
        step = model.train_step

        @functools.wraps(step)
        def train_step(data: Any) -> Any:
            if not self.recorder.wants():
                return step(data)
            self._try("reading a batch", lambda: self.channel.offer_data(self.channel.leaves("data", data)))
            before, self.local.in_train = getattr(self.local, "in_train", False), True
            try:
                return step(data)
            finally:
                self.local.in_train = before

        model.__dict__["train_step"] = train_step

    def _watch_train_function(self, model: Any) -> None:
        """Observe what goes into a call of one or more steps, and what it reports."""
        function = model.train_function
        if function is None or getattr(function, "orch_watched", False):
            return
        compiled = bool(getattr(model, "jit_compile", False))
        self._compiled = self._compiled or compiled

        @functools.wraps(function)
        def train_function(iterator: Any) -> Any:
            if not self.recorder.wants():
                return function(iterator)
            self._try("reading random states", self.facts.before_first_step)
            before = self.recorder.steps
            if compiled:
                self._try("reading initial weights", lambda: self.channel.initial(named(state_of(model))))
            reported: List[Any] = []
            self.recorder.hold()
            try:
                logs = function(self._imposed_iterator(iterator))
                if compiled:
                    self._try("reading a compiled step", self._after_compiled, model, logs)
                if self.recorder.steps - before == steps_of_a_call(model):
                    self._try("reading metrics", lambda: reported.extend(reported_by(logs)))
            finally:
                self.recorder.let_go(reported)
            return logs

        train_function.orch_watched = True  # type: ignore[attr-defined]
        model.__dict__["train_function"] = train_function

    def _imposed_iterator(self, iterator: Any) -> Any:
        try:
            return self.imposed.iterator(iterator, self.recorder.steps)
        except Exception as error:
            self.recorder.fail("imposing a batch", error)
            return iterator

    def _after_compiled(self, model: Any, logs: Any) -> None:
        for name, value in flatten(logs):
            self.channel.offer("loss", name, [value])
        slots = slots_of(model.optimizer)
        self.channel.commit(named([*state_of(model), *slots]), slots)

    def _get_next(self, original: Any, _iterator: Any, *args: Any, **kwargs: Any) -> Any:
        element = original(*args, **kwargs)
        if self._compiled and not self.channel.tf.executing_eagerly() and not self.channel.compiled():
            self._try("reading a batch", self._offer_structure, "data", element)
        return element

    # ------------------------------------------------------------ optimizers

    def _apply(self, original: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        if getattr(self.local, "in_apply", False):
            return original(*args, **kwargs)
        pairs = list(args[0]) if args else None  # may be a zip, which can be read only once
        args = (pairs, *args[1:]) if pairs is not None else args
        self._try("reading the optimizer", self._before_apply, optimizer)
        self._try("reading the step before", self._before_overwriting, optimizer, args, kwargs)
        self.local.in_apply = True
        try:
            result = original(*args, **kwargs)
        finally:
            self.local.in_apply = False
        self._try("reading updated weights", self._after_apply, optimizer, args, kwargs)
        return result

    def _before_apply(self, optimizer: Any) -> None:
        self.facts.add_optimizer(optimizer)
        if getattr(optimizer, "built", False):
            self.channel.initial(named(slots_of(optimizer)), weights=False)

    def _before_overwriting(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self.channel.about_to_update(trained_by(optimizer, args, kwargs))

    def _before_update(self, original: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Record slots of an optimizer, which exist once its first call has built it."""
        self._try("reading the optimizer", self._before_apply, optimizer)
        return original(*args, **kwargs)

    def _after_apply(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        trained = trained_by(optimizer, args, kwargs)
        state = state_of(self._latest_model) if self._latest_model is not None else []
        rest = [variable for variable in state if not getattr(variable, "trainable", False)]
        slots = slots_of(optimizer)
        self._try("looking for open files", self._look_for_files)
        self.channel.commit(named([*trained, *rest, *slots]), slots)

    def _look_for_files(self) -> None:
        if self.channel.tf.executing_eagerly():
            self.files.look()

    # ------------------------------------------------------------ context

    def _offer_structure(self, name: str, structure: Any) -> None:
        self.channel.offer_named("batch", self.channel.leaves(name, structure))

    def _place(self) -> Any:
        """Return the graph being built; None when eager."""
        return None if self.channel.tf.executing_eagerly() else self.channel.graph()

    def _tapes(self) -> List[Any]:
        return self._stack("tapes")

    def _layers(self) -> List[Any]:
        return self._stack("layers")

    def _stack(self, name: str) -> List[Any]:
        stack: Optional[List[Any]] = getattr(self.local, name, None)
        if stack is None:
            stack = []
            setattr(self.local, name, stack)
        return stack


def _nothing() -> None:
    """Becomes a tf.function whose class is needed; never traced."""
