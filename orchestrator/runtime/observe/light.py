"""Steps as fingerprints: exact sums over the bits of a tensor, the same whatever the order of threads.

The sums are taken by numpy over the memory that the graph hands out anyway, without a copy. So a graph
observed in full, lightly or no longer is one and the same graph.
"""

from __future__ import annotations

import math
import zlib
from typing import TYPE_CHECKING, Any, Dict, List, Sequence, Tuple

from .digest import raw_bytes

if TYPE_CHECKING:
    from .recorder import Label

STAGES = ("batch", "loss", "gradient", "update")
"""What a light step looks at; optimizer slots and layers' outputs are left out."""

BLOCK = 4096
"""8-byte words that are summed up at once; each block's sum counts by its place."""

SAMPLE = 1024
"""Elements whose L2 norm tells the size of a difference."""

_MASK = (1 << 64) - 1


def fingerprint(array: Any) -> str:
    """16 hex digits: the sum modulo 2**64 of the array's 8-byte words, each block weighted by its place.

    One changed bit always changes it. Blind to an exchange of words within a block of 32 KiB.
    """
    import numpy as np

    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    words = flat[: flat.size // 8 * 8].view(np.uint64)
    blocks = words.size // BLOCK
    sums = np.add.reduce(words[: blocks * BLOCK].reshape(blocks, BLOCK), axis=1, dtype=np.uint64)
    weighted = int(np.add.reduce(sums * np.arange(1, 2 * blocks, 2, dtype=np.uint64), dtype=np.uint64))
    rest = int(np.add.reduce(words[blocks * BLOCK :], dtype=np.uint64)) * (2 * blocks + 1)
    tail = int.from_bytes(flat[words.size * 8 :].tobytes(), "little")
    return f"{(weighted + rest + tail) & _MASK:016x}"


def checksum(array: Any) -> str:
    """8 hex digits: CRC-32 of the content, which knows every exchange. For batches, strings too."""
    return f"{zlib.crc32(raw_bytes(array)):08x}"


def sampled_norm(array: Any) -> Any:
    """The L2 norm of at most SAMPLE elements, evenly spaced; None for strings and beyond numbers."""
    import numpy as np

    if array.dtype.hasobject or array.dtype.kind in "SUc" or not array.size:
        return None
    stride = max(1, -(-int(array.size) // SAMPLE))
    wide = array.reshape(-1)[::stride].astype(np.float64)
    value = math.sqrt(float(np.dot(wide, wide)))
    return value if math.isfinite(value) else None


class LightSteps:
    """The light step in progress, and the names of the last one's tensors."""

    def __init__(self) -> None:
        self.done = 0
        self._taken: List[Tuple["Label", str, Any]] = []
        self._names: List[List[str]] = []

    def takes(self, label: "Label") -> bool:
        """Whether a tensor is looked at."""
        return label.stage in STAGES and label.light

    def take(self, labels: Sequence["Label"], arrays: Sequence[Any]) -> None:
        """Take arrays of the step in progress; they are read before this returns."""
        for label, array in zip(labels, arrays):  # noqa: B905
            if self.takes(label):
                digest = checksum(array) if label.stage == "batch" else fingerprint(array)
                self._taken.append((label, digest, sampled_norm(array)))

    def lines(self, step: int) -> List[Dict[str, Any]]:
        """The step's line, after one that names its tensors where they are not those of the last step."""
        ordered = sorted(self._taken, key=lambda item: (STAGES.index(item[0].stage), item[0].order))
        self._taken = []
        self.done += 1
        seen: Dict[Tuple[str, str], int] = {}
        names = []
        for label, _, _ in ordered:
            count = seen[label.stage, label.name] = seen.get((label.stage, label.name), 0) + 1
            names.append([label.stage, label.name if count == 1 else f"{label.name}#{count}"])
        line = {"event": "light", "step": step}
        line = {**line, "sums": [item[1] for item in ordered], "norms": [item[2] for item in ordered]}
        if names == self._names:
            return [line]
        self._names = names
        return [{"event": "light-names", "names": names}, line]
