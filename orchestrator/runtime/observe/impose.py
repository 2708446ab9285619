"""Give a training another run's recorded batches or initial weights instead of its own.

This is a counterfactual: if the two runs are equal afterwards, the imposed value was the cause. A batch is
imposed where it enters, without changing the graph: on the iterator that `fit` passes on, or on the element
that a loop fetches. Model inputs and labels are replaced where they are used only if a program feeds arrays
of its own.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

from .settings import Settings

Tensors = Dict[str, Dict[str, Any]]
"""Facts of recorded tensors by name."""

Note = Callable[[str, str], None]


class Override:
    """Impose values on a run. `note(what, why)` is called once for each that could not be imposed."""

    def __init__(self, tf: Any, settings: Settings, note: Note) -> None:
        self._tf = tf
        self._note = note
        self.slots = settings.impose_slots
        self._batches = Recorded(tf, settings.impose_batch, "batch", note)
        self._weights = Recorded(tf, settings.impose_weights, "initial", note)
        self._names: Dict[str, int] = {}
        self._given: set[str] = set()
        self._substitute: Tuple[Any, Any] = (None, None)

    # ------------------------------------------------------------ batches

    def iterator(self, original: Any, done: int) -> Any:
        """Return an iterator of the same kind that yields the other run's batches from step `done` + 1 on,
        and then those of `original`; `original` itself if there is nothing to impose."""
        if not self._batches.have("data"):
            return original
        if self._substitute[0] is not original:
            self._substitute = (original, self._iterator(original, done))
        return self._substitute[1]

    def element(self, original: Any, step: int) -> Any:
        """Return the other run's element of step `step` instead of the one that an eager loop fetched."""
        if self._batches.have("data") or not self._batches.have("element"):
            return original
        return self._rebuilt("element", original, step, original)

    def used(self, name: str, original: Any, step: Callable[[], int]) -> Any:
        """Replace a model's input or a loss's labels where they are used, in programs that feed arrays.

        `step` returns the step in progress. In a graph, the value passes through Python.
        """
        if self._batches.have("data") or self._batches.have("element") or not self._batches.have(name):
            return original
        if self._tf.executing_eagerly():
            return self._rebuilt(name, original, step(), original)
        return mapped(name, original, lambda path, leaf: self._in_graph(path, leaf, step))

    # ------------------------------------------------------------ weights

    def weight(self, name: str, variable: Any) -> None:
        """Assign the other run's initial value to an initialised variable, eagerly. Call it once for each
        variable, in the order of the program: equal names are distinguished by number."""
        if not self._weights.steps:
            return
        count = self._names[name] = self._names.get(name, 0) + 1
        full = name if count == 1 else f"{name}#{count}"
        value = self._weights.array(1, full)
        if value is None and self.slots:
            return  # only what that recording names is imposed
        if value is None:
            self._note(f"imposing {full}", "the other recording does not hold it whole")
        elif tuple(value.shape) != tuple(variable.shape):
            self._note(f"imposing {full}", f"its shape is {list(value.shape)} there")
        else:
            variable.assign(value)
            self._given.add(full)

    def unassigned(self, name: str) -> None:
        """Note that a variable could not be given its value, because it is created while its function is
        traced."""
        if self._weights.steps:
            self._note(f"imposing {name}", "the variable is made inside the graph")

    def summary(self) -> Optional[Dict[str, Any]]:
        """Return the last step whose batch was imposed, and the names of imposed weights; None if nothing was
        requested."""
        if not self._batches.steps and not self._weights.steps:
            return None
        return {"batches": self._batches.used, "weights": sorted(self._given)}

    # ------------------------------------------------------------ inside

    def _iterator(self, original: Any, done: int) -> Any:
        spec = original.element_spec
        first = self._rebuilt("data", spec, done + 1, None)
        if first is None:
            return original

        def elements() -> Any:
            for step in range(done + 1, len(self._batches.steps) + 1):
                element = self._rebuilt("data", spec, step, None)
                if element is None:
                    break
                yield element
            yield from original

        dataset = self._tf.data.Dataset.from_generator(elements, output_signature=spec)
        return iter(dataset)

    def _rebuilt(self, name: str, structure: Any, step: int, otherwise: Any) -> Any:
        """Return the other run's batch of a step in the structure of ours; `otherwise` if parts are
        missing."""
        if step > len(self._batches.steps):
            return otherwise
        missing: List[str] = []

        def leaf(path: str, ours: Any) -> Any:
            value = self._batches.array(step, path)
            if value is None or not hasattr(ours, "shape") or len(value.shape) != len(ours.shape):
                missing.append(path)
                return ours
            return self._tf.constant(value) if self._tf.is_tensor(ours) else value

        built = mapped(name, structure, leaf)
        if missing:
            why = f"the other recording does not hold {', '.join(missing[:3])} whole in this shape"
            self._note(f"imposing the batch of step {step}", why)
            return otherwise
        self._batches.used = max(self._batches.used, step)
        return built

    def _in_graph(self, path: str, ours: Any, step: Callable[[], int]) -> Any:
        tf = self._tf
        if not tf.is_tensor(ours):
            return ours

        def choose(own: Any) -> Any:
            value = self._batches.array(step(), path)
            if value is None or value.dtype != own.dtype:
                return own
            self._batches.used = max(self._batches.used, step())
            return value

        chosen = tf.numpy_function(choose, [ours], ours.dtype, stateful=True)
        chosen.set_shape(ours.shape)
        return chosen


class Recorded:
    """One stage of another run's recording; tensors are read from disk when they are requested."""

    def __init__(self, tf: Any, folder: Optional[Path], stage: str, note: Note) -> None:
        self._tf = tf
        self._folder = folder
        self.used = 0
        self.steps: List[Tensors] = []
        if folder is not None:
            try:
                self.steps = _steps(folder, stage)
            except (OSError, ValueError, KeyError) as error:
                note(f"imposing from {folder.name}", f"it cannot be read: {error}")

    def have(self, group: str) -> bool:
        """Whether the first step contains a tensor of that name, or below it."""
        return any(f"{name}/".startswith(f"{group}/") for name in (self.steps or [{}])[0])

    def array(self, step: int, name: str) -> Any:
        """Return the tensor as a numpy array; None if it is missing or was not stored completely."""
        import numpy as np

        facts = self.steps[step - 1].get(name) if 0 < step <= len(self.steps) else None
        if self._folder is None or facts is None or not facts.get("file"):
            return None
        kept = np.load(self._folder / facts["file"], allow_pickle=False)
        dtype = self._tf.as_dtype(facts["dtype"]).as_numpy_dtype
        return (kept if kept.dtype == dtype else kept.view(dtype)).reshape(facts["shape"])


def mapped(name: str, structure: Any, leaf: Callable[[str, Any], Any]) -> Any:
    """Return `structure` with each leaf replaced by leaf(path, value); paths as in digest.flatten, below
    `name`."""
    if isinstance(structure, dict):
        return type(structure)({key: mapped(f"{name}/{key}", item, leaf) for key, item in structure.items()})
    if isinstance(structure, (list, tuple)):
        items = [mapped(f"{name}/{index}", item, leaf) for index, item in enumerate(structure)]
        return type(structure)(*items) if hasattr(structure, "_fields") else type(structure)(items)
    return leaf(name, structure)


def _steps(folder: Path, stage: str) -> List[Tensors]:
    found = []
    for text in (folder / "steps.jsonl").read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        if line.get("event") == "step":
            found.append({item["name"]: item for item in line["tensors"] if item["stage"] == stage})
    return found
