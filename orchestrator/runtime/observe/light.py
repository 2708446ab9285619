"""Fingerprints of steps: exact sums over the bits of a tensor, independent of the order of threads.

numpy computes the sums over memory that the graph provides anyway, without a copy. So the graph is the same
whether a step is observed in full, by fingerprint, or not at all.
"""

from __future__ import annotations

import math
import time
import zlib
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, Optional, Sequence, Tuple

from .digest import raw_bytes

if TYPE_CHECKING:
    from .recorder import Label

STAGES = ("batch", "loss", "gradient", "update")
"""Stages that a light step fingerprints; optimizer slots and layers' outputs are excluded."""

BLOCK = 4096
"""8-byte words per block; each block's sum is weighted by its position."""

SPARSE = {"gradient": 8, "update": 4}
"""Each step reads only one in so many blocks of a large tensor, and the next step the next ones. Weights that
differ stay different, so no difference is missed."""

SMALL = 4096
"""Maximum bytes of a tensor for which a checksum is used, because it is cheaper than sums."""

SAMPLE = 128
"""Maximum elements whose L2 norm is recorded, to show the size of a difference."""

EVERY = 1.0
"""Seconds between writes of light steps to the disk, so that a killed process loses few."""

_MASK = (1 << 64) - 1
_odd: Any = None


def fingerprint(array: Any, *, ordered: bool = False, every: int = 1, first: int = 0) -> str:
    """Return 16 hex digits: the sum modulo 2**64 of the array's 8-byte words, each block weighted by its
    position.

    A single changed bit always changes it. Swapping words within a block of 32 KiB does not; with `ordered`,
    the rows (first dimension) are the blocks, and short rows count word by word. Only every `every`-th block,
    from number `first` on, and the end are read. For strings and small arrays: their CRC-32, 8 hex digits.
    """
    import numpy as np

    if array.nbytes <= SMALL or array.dtype.hasobject or array.dtype.kind in "SU":
        return f"{zlib.crc32(raw_bytes(array)):08x}"
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    words = flat[: flat.size // 8 * 8].view(np.uint64)
    block = _row(array) if ordered else BLOCK
    blocks = words.size // block
    sums = words[: blocks * block].reshape(blocks, block)[first::every]
    if block > 1:
        sums = np.add.reduce(sums, axis=1)
    total = int(np.dot(sums.reshape(-1), _odds(sums.size)))
    rest = int(np.add.reduce(words[blocks * block :])) * (2 * blocks + 1)
    tail = int.from_bytes(flat[words.size * 8 :].tobytes(), "little")
    return f"{(total + rest + tail) & _MASK:016x}"


def _row(array: Any) -> int:
    """Return the words per row; 1 if rows are short or not made of complete words."""
    size = array.nbytes // array.shape[0]
    return int(size // 8) if size % 8 == 0 and size >= 256 else 1


def _odds(count: int) -> Any:
    """Return 1, 3, 5, …: a nonzero change times an odd number is never 0 modulo 2**64."""
    import numpy as np

    global _odd
    if _odd is None or _odd.size < count:
        _odd = np.arange(1, 2 * max(count, BLOCK), 2, dtype=np.uint64)
    return _odd[:count]


class Norms:
    """L2 norms of at most SAMPLE elements of each array, evenly spaced, computed all at once."""

    def __init__(self) -> None:
        self._samples: Any = None
        self._count = 0
        self._none: set[int] = set()

    def take(self, array: Any) -> None:
        """Copy the required elements of an array."""
        import numpy as np

        if self._samples is None:
            self._samples = np.zeros((64, SAMPLE))
        elif self._count == len(self._samples):
            self._samples = np.concatenate([self._samples, np.zeros_like(self._samples)])
        row = self._samples[self._count]
        if array.dtype.hasobject or array.dtype.kind in "SUc" or not array.size:
            self._none.add(self._count)
            row[:] = 0.0
        else:
            elements = array.reshape(-1)[:: -(-array.size // SAMPLE)]
            row[: elements.size] = elements
            row[elements.size :] = 0.0
        self._count += 1

    def values(self) -> List[Optional[float]]:
        """Return the norm of each array taken since the last call; None for strings, and if it is not
        finite."""
        import numpy as np

        count, none = self._count, self._none
        self._count, self._none = 0, set()
        if not count:
            return []
        with np.errstate(all="ignore"):
            squares = np.einsum("ij,ij->i", self._samples[:count], self._samples[:count])
            norms = np.sqrt(squares).tolist()
        return [norm if i not in none and math.isfinite(norm) else None for i, norm in enumerate(norms)]


class LightSteps:
    """The light step in progress, and the lines of earlier ones that are not written yet."""

    def __init__(self) -> None:
        self.done = 0
        self._labels: List["Label"] = []
        self._sums: List[str] = []
        self._norms = Norms()
        self._known: List["Label"] = []
        self._places: List[int] = []
        self._names: List[List[str]] = []
        self._lines: List[Dict[str, Any]] = []
        self._written = time.monotonic()

    def takes(self, label: "Label") -> bool:
        """Whether a tensor is fingerprinted."""
        return label.light and label.stage in STAGES

    def take(self, labels: Sequence["Label"], arrays: Sequence[Any]) -> None:
        """Add arrays to the step in progress; they are read before this returns."""
        for label, array in zip(labels, arrays):  # noqa: B905
            if self.takes(label):
                every = SPARSE.get(label.stage, 1)
                ordered = label.stage == "batch"
                self._labels.append(label)
                self._sums.append(fingerprint(array, ordered=ordered, every=every, first=self.done % every))
                self._norms.take(array)

    def labels(self) -> List["Label"]:
        """Return the labels that were taken in the step in progress."""
        return self._labels

    def commit(self, step: int) -> None:
        """Complete the step in progress: add its line, and before it one with the names of its tensors if
        they differ from the last step's."""
        labels, sums, norms = self._labels, self._sums, self._norms.values()
        self._labels, self._sums = [], []
        self.done += 1
        if labels != self._known:
            self._sort(labels)
        line = {"sums": [sums[i] for i in self._places], "norms": [norms[i] for i in self._places]}
        self._lines.append({"event": "light", "step": step, **line})

    def _sort(self, labels: List["Label"]) -> None:
        """Compute the order of stages for steps with these labels."""
        self._known = labels
        order = [(STAGES.index(label.stage), label.order) for label in labels]
        self._places = sorted(range(len(labels)), key=order.__getitem__)
        names = _names(labels[i] for i in self._places)
        if names != self._names:
            self._names = names
            self._lines.append({"event": "light-names", "names": names})

    def due(self, *, now: bool = False) -> List[Dict[str, Any]]:
        """Return the lines to write: all that wait, if EVERY seconds have passed since the last time, or with
        `now`."""
        if not now and time.monotonic() - self._written < EVERY:
            return []
        self._written = time.monotonic()
        lines, self._lines = self._lines, []
        return lines


def _names(labels: Iterable["Label"]) -> List[List[str]]:
    seen: Dict[Tuple[str, str], int] = {}
    found = []
    for label in labels:
        count = seen[label.stage, label.name] = seen.get((label.stage, label.name), 0) + 1
        found.append([label.stage, label.name if count == 1 else f"{label.name}#{count}"])
    return found
