"""The random generators of Python and NumPy in this process: where they stand, and put back there."""

from __future__ import annotations

import pickle
import random
import sys
from pathlib import Path
from typing import Any, List

_made: List[Any] = []
"""What numpy.random.default_rng has made, in the order of the program."""


def watch() -> None:
    """Remember the generators that numpy.random.default_rng makes from here on."""
    numpy: Any = sys.modules.get("numpy")
    original = getattr(getattr(numpy, "random", None), "default_rng", None)
    if original is None or getattr(original, "_orch_resume", False):
        return

    def default_rng(*args: Any, **kwargs: Any) -> Any:
        made = original(*args, **kwargs)
        _made.append(made)
        return made

    default_rng._orch_resume = True  # type: ignore[attr-defined]
    numpy.random.default_rng = default_rng


def keep(path: Path) -> None:
    """Write where they stand to `path`. It is read by `put_back` in a repeated run of the same job alone."""
    numpy: Any = sys.modules.get("numpy")
    states = {
        "python": random.getstate(),
        "numpy": numpy.random.get_state() if numpy else None,
        "made": [each.bit_generator.state for each in _made],
    }
    path.write_bytes(pickle.dumps(states))


def put_back(path: Path, which: str) -> None:
    """Let `which` of them stand where they stood: python, numpy or made."""
    states = pickle.loads(path.read_bytes())  # written by `keep` on this computer, a moment ago
    numpy: Any = sys.modules.get("numpy")
    if which == "python":
        random.setstate(states["python"])
    elif which == "numpy" and numpy and states["numpy"]:
        numpy.random.set_state(states["numpy"])
    elif which == "made":
        for generator, state in zip(_made, states["made"]):  # noqa: B905
            generator.bit_generator.state = state
