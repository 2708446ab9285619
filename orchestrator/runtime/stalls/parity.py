"""Check whether a changed pipeline gives the training the same batches."""

from __future__ import annotations

import math
from time import perf_counter
from typing import Any, Dict, List

from ..observe.digest import records
from .fixes import Fix, fresh

SECONDS = 3.0
BATCHES = 12
"""Of the pipeline as it is, at most; of the others as many."""


class Parity:
    """Compare the first batches of the changed and the unchanged pipeline, both built afresh."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._own = _fingerprints(fresh(dataset), BATCHES, SECONDS)
        again = _fingerprints(fresh(dataset), len(self._own))
        self._repeats = again == self._own

    def of(self, fix: Fix) -> Dict[str, Any]:
        """Return `same`: order, examples (the same ones in another order), none, or None if unknown."""
        if not self._own or not self._repeats:
            differ = "two passes of the unchanged pipeline differ already"
            return {"same": None, "batches": 0, "why": differ if self._own else "there were no batches"}
        try:
            other = _fingerprints(fix.twin(self._dataset), len(self._own))
        except Exception as error:
            return {"same": None, "batches": 0, "why": f"{type(error).__name__}: {error}"[:200]}
        if other == self._own:
            return {"same": "order", "batches": len(self._own), "why": ""}
        shuffled = sorted(row for batch in other for row in batch) == sorted(
            row for batch in self._own for row in batch
        )
        return {"same": "examples" if shuffled else "none", "batches": len(self._own), "why": ""}


def _fingerprints(dataset: Any, most: int, seconds: float = math.inf) -> List[List[str]]:
    """Return the digests of each record of the first batches: at most `most`, or as many as arrive in
    `seconds`.
    """
    import numpy as np
    import tensorflow as tf

    found: List[List[str]] = []
    until = perf_counter() + seconds
    for element in dataset:
        arrays = [np.asarray(part) for part in tf.nest.flatten(element, expand_composites=True)]
        told = records(arrays)
        found.append(told.get("rows") or [str(told)])
        if len(found) >= most or perf_counter() > until:
            break
    return found
