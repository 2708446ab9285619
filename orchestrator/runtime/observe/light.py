"""Steps as fingerprints: exact sums over the bits of a tensor, the same whatever the order of threads.

The sums are taken by numpy over the memory that the graph hands out anyway, without a copy. So a graph
observed in full, lightly or no longer is one and the same graph.
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
"""What a light step looks at; optimizer slots and layers' outputs are left out."""

BLOCK = 4096
"""8-byte words that are summed up at once; each block's sum counts by its place."""

SPARSE = {"gradient": 8, "update": 4}
"""Of so many blocks of a large tensor, a step looks at one, and the next step at the next: what differs in
weights goes on to differ, so that nothing is lost."""

SMALL = 4096
"""Bytes up to which a checksum of the content is cheaper than sums."""

SAMPLE = 128
"""Elements whose L2 norm tells the size of a difference."""

EVERY = 1.0
"""Seconds: light steps reach the disk that often, so that a killed process loses few of them."""

_MASK = (1 << 64) - 1
_odd: Any = None


def fingerprint(array: Any, *, ordered: bool = False, every: int = 1, first: int = 0) -> str:
    """16 hex digits: the sum modulo 2**64 of the array's 8-byte words, each block weighted by its place.

    One changed bit always changes it. Blind to an exchange of words within a block of 32 KiB; where
    `ordered`, rows (the first dimension) are the blocks, and short ones count word by word. Of `every`
    blocks one is looked at, from number `first` on, and the end. Strings and small arrays: their CRC-32, 8
    hex digits.
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
    """Words of a row, or of the part of it that is a block; 1 where rows are short or no whole words."""
    size = array.nbytes // array.shape[0]
    return int(size // 8) if size % 8 == 0 and size >= 256 else 1


def _odds(count: int) -> Any:
    """1, 3, 5, …: a change times an odd number is never nothing modulo 2**64."""
    import numpy as np

    global _odd
    if _odd is None or _odd.size < count:
        _odd = np.arange(1, 2 * max(count, BLOCK), 2, dtype=np.uint64)
    return _odd[:count]


class Norms:
    """L2 norms of at most SAMPLE elements of each array, evenly spaced, worked out all at once."""

    def __init__(self) -> None:
        self._samples: Any = None
        self._count = 0
        self._none: set[int] = set()

    def take(self, array: Any) -> None:
        """Read what is needed of an array."""
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
        """The norm of each array taken since the last call; None for strings and beyond numbers."""
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
    """The light step in progress, and the lines of those before that are not written yet."""

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
        """Whether a tensor is looked at."""
        return label.light and label.stage in STAGES

    def take(self, labels: Sequence["Label"], arrays: Sequence[Any]) -> None:
        """Take arrays of the step in progress; they are read before this returns."""
        for label, array in zip(labels, arrays):  # noqa: B905
            if self.takes(label):
                every = SPARSE.get(label.stage, 1)
                ordered = label.stage == "batch"
                self._labels.append(label)
                self._sums.append(fingerprint(array, ordered=ordered, every=every, first=self.done % every))
                self._norms.take(array)

    def labels(self) -> List["Label"]:
        """What was taken of the step in progress."""
        return self._labels

    def commit(self, step: int) -> None:
        """The step in progress is complete: its line, after one that names its tensors where they are not
        those of the last step."""
        labels, sums, norms = self._labels, self._sums, self._norms.values()
        self._labels, self._sums = [], []
        self.done += 1
        if labels != self._known:
            self._sort(labels)
        line = {"sums": [sums[i] for i in self._places], "norms": [norms[i] for i in self._places]}
        self._lines.append({"event": "light", "step": step, **line})

    def _sort(self, labels: List["Label"]) -> None:
        """Work out the places of the ladder for steps of these labels."""
        self._known = labels
        order = [(STAGES.index(label.stage), label.order) for label in labels]
        self._places = sorted(range(len(labels)), key=order.__getitem__)
        names = _names(labels[i] for i in self._places)
        if names != self._names:
            self._names = names
            self._lines.append({"event": "light-names", "names": names})

    def due(self, *, now: bool = False) -> List[Dict[str, Any]]:
        """The lines to be written: all that wait, once in EVERY seconds, or `now`."""
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
