"""How a TensorFlow value reaches the recorder: at once when eager, by an operation of its own in a graph.

Three things keep the observed numbers what they would have been:
- in a graph, reading is added when the graph is complete: every reader of a tensor is known, and none of
  the program's operations comes after one of ours. A tensor that would be merged into its only reader is
  left unread (see fusion).
- everything sits behind one condition per group, so that after the last observed step it costs one test.
- nothing here asks for a random seed, creates a variable, or is recorded by a gradient tape.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import weakref
from typing import Any, Iterable, Iterator, List, NamedTuple, Tuple

from .digest import flatten
from .fusion import LEAVE, READ, WAIT, judge
from .impose import Override
from .reading import Readings, Sink
from .recorder import Label, Recorder
from .variables import as_array, has_several, has_value, raw_variable, read_value

Entry = Tuple[Label, Any]


class Turn(NamedTuple):
    """A step that is complete in a graph: the values that it offered, and the variables that it changed."""

    entries: List[Entry]
    updates: List[Entry]


class Unset(NamedTuple):
    """A variable that its graph has not initialised yet. `weight`: it belongs to a model."""

    label: Label
    name: str
    variable: Any
    weight: bool


class Channel:
    """Pass TensorFlow values to a Recorder. There is one for a process, shared by its threads."""

    def __init__(self, tf: Any, recorder: Recorder, imposed: Override) -> None:
        self.tf = tf
        self.imposed = imposed
        self.recorder = recorder
        self.local = threading.local()
        self.readings = Readings(tf, recorder.wants)
        self._order = itertools.count()
        self._pending: Any = weakref.WeakKeyDictionary()
        self._turns: Any = weakref.WeakKeyDictionary()
        self._sent: Any = weakref.WeakKeyDictionary()
        self._committed: Any = weakref.WeakKeyDictionary()
        self._initial: List[Any] = []
        self._unset: List[Unset] = []
        self.turns = 0  # steps that were offered; a traced one counts once

    # ------------------------------------------------------------ offering values

    def offer(self, stage: str, name: str, values: Iterable[Any]) -> None:
        """Record values, in order: as name, or name/0, name/1, … if there are several."""
        flat = [part for value in values for part in self._parts(value)]
        self.offer_named(stage, [(f"{name}/{i}" if len(flat) > 1 else name, v) for i, v in enumerate(flat)])

    def offer_named(self, stage: str, named: Iterable[Tuple[str, Any]]) -> None:
        """Record (name, tensor) pairs."""
        entries = [(Label(stage, name, next(self._order)), value) for name, value in named]
        if not entries or self._has_several_replicas():
            return
        if self.tf.executing_eagerly():
            self.observe_now(entries)
        elif self._graph_is_readable():
            self._pending.setdefault(self.graph(), []).extend(entries)

    def offer_data(self, named: List[Tuple[str, Any]]) -> None:
        """Record the data of a train_step. In a graph, data that were recorded as a fetched element are not
        recorded twice: fit of tf-keras 2 fetches so, fit of Keras 3 does not.
        """
        pending = None if self.tf.executing_eagerly() else self._pending.get(self.graph())
        if pending:
            given = {id(value) for _, value in named}
            pending[:] = [
                (label, value)
                for label, value in pending
                if label.name.split("/")[0] not in ("element", "share") or id(value) not in given
            ]
        self.offer_named("batch", named)

    def retract(self, name: str) -> None:
        """Forget a batch that was offered in the graph under construction, but belongs to no step of it."""
        if not self.tf.executing_eagerly():
            pending = self._pending.get(self.graph(), [])
            pending[:] = [entry for entry in pending if entry[0].name.split("/")[0] != name]

    def leaves(self, name: str, structure: Any) -> List[Tuple[str, Any]]:
        """Return (name, tensor) of the dense tensors in a structure; nested ones are named by their path."""
        found = []
        for path, leaf in flatten(structure):
            parts = self._parts(leaf)
            base = f"{name}/{path}" if path else name
            found += [(f"{base}/{i}" if len(parts) > 1 else base, part) for i, part in enumerate(parts)]
        return found

    def observe_now(self, entries: List[Entry]) -> None:
        """Record eager values at once."""
        wanted = [entry for entry in entries if self.recorder.takes(entry[0])]
        with self.unrecorded():
            arrays = [as_array(value) for _, value in wanted]
        self.recorder.observe([label for label, _ in wanted], arrays)

    def commit(self, variables: List[Tuple[str, Any]], slots: Iterable[Any] = ()) -> None:
        """Complete the step now that `variables` (name, variable) have their new values, and record these.

        `slots` are those of them that belong to an optimizer, which fingerprint steps leave out. In a graph
        they are read at its end, see `about_to_update`.
        """
        if self._has_several_replicas():
            return
        self.turns += 1
        heavy = {id(variable) for variable in slots}
        entries = [
            (Label("update", name, next(self._order), id(variable) not in heavy), variable)
            for name, variable in variables
        ]
        if self.tf.executing_eagerly():
            self._give_up_unset()
            self.observe_now(entries)
            self.recorder.commit()
        elif self._graph_is_readable():
            graph = self.graph()
            self._turns.setdefault(graph, []).append(Turn(self._pending.pop(graph, []), entries))

    def about_to_update(self, variables: Iterable[Any]) -> None:
        """In a graph: read steps whose new values are still unread, if these would be overwritten now."""
        if self.tf.executing_eagerly() or not self._turns:
            return
        updated = {id(variable) for variable in variables}
        turns = self._turns.get(self.graph(), [])
        if any(id(variable) in updated for turn in turns for _, variable in turn.updates):
            self._read_turns(last=False)

    def graph_ends(self) -> None:
        """Read everything that was offered in the graph that is being built and is complete now, step by
        step.

        A value that nothing reads stays unread: reading it might change how the graph computes. Of all added
        operations a single one must run, and the others feed it. Measured: with one for each of two models,
        the graph optimiser merged the models' common computations in another order.
        """
        if self.tf.executing_eagerly() or not (self._pending or self._turns or self._sent):
            return
        self._read_turns(last=True)
        before = self._sent.pop(self.graph(), [])
        if before:
            with self.unrecorded():
                self.readings.must_run(before)
        self.readings.forget()

    def initial(self, named: Iterable[Tuple[str, Any]], *, weights: bool = True) -> None:
        """Record variables' values before their first update; each variable once.

        Those created while their function is traced have no value yet, and are recorded by `initialised`.
        `weights`: they belong to a model, so that another run's values may be imposed on them first.
        """
        fresh = [(name, v) for name, v in named if not any(v is known for known in self._initial)]
        self._initial.extend(variable for _, variable in fresh)
        self._unset += [
            Unset(Label("initial", name, next(self._order)), name, variable, weights)
            for name, variable in fresh
        ]
        self.initialised()

    def initialised(self) -> None:
        """Record the first values of variables that have one now."""
        if not self._unset:
            return
        with self.tf.init_scope():
            if not self.tf.executing_eagerly():
                return
            waiting, self._unset = self._unset, []
            for unset in waiting:
                if has_value(unset.variable):
                    if unset.weight or self.imposed.slots:
                        self.imposed.weight(unset.name, raw_variable(unset.variable))
                    self.observe_now([(unset.label, unset.variable)])
                else:
                    self._unset.append(unset)

    def close(self) -> None:
        """Release everything that was held for the observed steps."""
        self._initial, self._unset = [], []
        for kept in (self._pending, self._turns, self._sent, self._committed):
            kept.clear()
        self.readings.close()

    # ------------------------------------------------------------ where we are

    def graph(self) -> Any:
        """Return the graph that this thread is building."""
        return self.tf.compat.v1.get_default_graph()

    @contextlib.contextmanager
    def unrecorded(self) -> Iterator[None]:
        """Hide the block from gradient tapes."""
        try:
            from tensorflow.python.eager import record

            stop = record.stop_recording
        except ImportError:
            from tensorflow.python.eager import tape

            stop = tape.stop_recording
        with stop():
            yield

    def _graph_is_readable(self) -> bool:
        graph = self.graph()
        if not getattr(graph, "building_function", False):
            self.recorder.note("a TensorFlow 1 graph", "sessions are not observed")
            return False
        if self.compiled():
            self.recorder.note(
                "tensors inside a function compiled by XLA",
                "jit_compile is on, and compiled code cannot be read without changing it",
            )
            return False
        return True

    def _has_several_replicas(self) -> bool:
        several = has_several(self.tf.distribute.get_strategy())
        if several:
            self.recorder.note(
                "steps under tf.distribute", "several replicas in one process are not observed"
            )
        return several

    def compiled(self) -> bool:
        """Whether XLA will compile the graph that is being built."""
        from tensorflow.python.ops import control_flow_util

        return bool(control_flow_util.GraphOrParentsInXlaContext(self.graph()))

    # ------------------------------------------------------------ inside

    def _parts(self, value: Any) -> List[Any]:
        """Return the dense tensors of a value: the components of sparse, ragged and IndexedSlices values."""
        tf = self.tf
        if isinstance(value, tf.IndexedSlices):
            return [value.values, value.indices]
        flat = tf.nest.flatten(value, expand_composites=True)
        eager = tf.executing_eagerly()
        return [
            part
            for part in flat
            if (tf.is_tensor(part) and part.dtype not in (tf.resource, tf.variant))
            or (eager and hasattr(part, "__array_interface__"))
        ]

    def _give_up_unset(self) -> None:
        """At the end of a step: variables that had no value before it stay unread, and this is reported."""
        lost, self._unset = self._unset, []
        for unset in lost:
            self.recorder.unread(f"initial/{unset.label.name}")
            if unset.weight:
                self.imposed.unassigned(unset.name)
        if lost:
            self.recorder.note(
                "some variables' initial values", "they are made inside the graph, out of its own inputs"
            )

    def _judge(self, entry: Entry) -> str:
        label, value = entry
        if label.stage in ("batch", "initial"):
            return READ
        verdict = judge(value, contractions=label.stage != "gradient")
        # A loss that nothing reads is where the gradients began: what follows cannot change them.
        return READ if verdict == WAIT and label.stage == "loss" else verdict

    def _read_turns(self, *, last: bool) -> None:
        """Read every step that is complete in this graph, and if this is the `last` time, the rest."""
        graph = self.graph()
        turns = self._turns.pop(graph, [])
        waiting: List[Entry] = []
        if turns:
            self._read_around(graph)
        for turn in turns:
            waiting = self._read(waiting + turn.entries, last=last)
            sink = self._sink([label for label, _ in turn.updates], commit=True)
            with self.unrecorded():
                values = [read_value(variable) for _, variable in turn.updates]
                done = self.readings.read(values, sink, after=self._sent_so_far())
            self._committed[graph] = done
            self._sent[graph] = [done]
        waiting = waiting + self._pending.pop(graph, [])
        if last:
            waiting = self._read(waiting, last=True)
        if waiting:
            self._pending[graph] = waiting

    def _read(self, entries: List[Entry], *, last: bool) -> List[Entry]:
        """Read what can be read; returns values that nothing reads yet."""
        verdicts = [(self._judge(entry), entry) for entry in entries]
        read = [entry for verdict, entry in verdicts if verdict == READ]
        for label in [e[0] for v, e in verdicts if v == LEAVE or (v == WAIT and last)]:
            self.recorder.unread(f"{label.stage}/{label.name}")
        if read:
            graph = self.graph()
            after = [self._committed[graph]] if graph in self._committed else []
            with self.unrecorded():
                sink = self._sink([label for label, _ in read])
                reading = self.readings.read([value for _, value in read], sink, after=after)
            self._sent.setdefault(graph, []).append(reading)
        return [entry for verdict, entry in verdicts if verdict == WAIT and not last]

    def _read_around(self, graph: Any) -> None:
        """At the end of a step in this graph: first read what it offered in the graphs around it."""
        around = getattr(graph, "outer_graph", None)
        if around is None or not getattr(around, "building_function", False):
            return
        with around.as_default():
            self._read_around(around)
            pending = self._pending.pop(around, [])
            waiting = self._read(pending, last=False) if pending else []
            if waiting:
                self._pending[around] = waiting

    def _sent_so_far(self) -> List[Any]:
        """Return results of the reading operations in this graph and those around it: the commit waits for
        them.
        """
        found: List[Any] = []
        graph = self.graph()
        while graph is not None:
            found += self._sent.pop(graph, [])
            graph = getattr(graph, "outer_graph", None)
        return found

    def _sink(self, labels: List[Label], *, commit: bool = False) -> Sink:
        import numpy as np

        recorder = self.recorder

        def sink(*arrays: Any) -> None:
            if commit:
                self._give_up_unset()
            recorder.observe(labels, [np.asarray(array) for array in arrays])
            if commit:
                recorder.commit()

        return sink
