"""The states of the random generators of Python and NumPy in this process: saved and restored."""

from __future__ import annotations

import pickle
import random
import sys
import weakref
from pathlib import Path
from typing import Any, List, Optional

_made: List[Any] = []
"""The generators that numpy.random.default_rng created, in the program's order."""

_instances: List["weakref.ref[random.Random]"] = []
"""The random.Random objects, in the program's order, including those that no longer exist."""

_MOST_INSTANCES = 10_000


def watch_python() -> None:
    """Remember the random.Random objects that are created from now on."""
    original = random.Random.__init__

    def __init__(self: random.Random, x: Any = None) -> None:
        original(self, x)
        if len(_instances) < _MOST_INSTANCES:
            _instances.append(weakref.ref(self))

    random.Random.__init__ = __init__  # type: ignore[method-assign]


def watch() -> None:
    """Remember the generators that numpy.random.default_rng creates from now on."""
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
    """Write their states to `path`. Only `put_back`, in a repeated run of the same job, reads it."""
    numpy: Any = sys.modules.get("numpy")
    states = {
        "python": random.getstate(),
        "numpy": numpy.random.get_state() if numpy else None,
        "made": [each.bit_generator.state for each in _made],
        "instances": [_state(each()) for each in _instances],
    }
    path.write_bytes(pickle.dumps(states))


def _state(instance: Optional[random.Random]) -> Any:
    """Return the state; None for a generator that is gone, or that has none, such as the system's."""
    return None if instance is None or isinstance(instance, random.SystemRandom) else instance.getstate()


def put_back(path: Path, which: str) -> None:
    """Restore the states of `which` of them: python, numpy, made or instances."""
    states = pickle.loads(path.read_bytes())  # written by `keep` on this computer, a moment ago
    numpy: Any = sys.modules.get("numpy")
    if which == "python":
        random.setstate(states["python"])
    elif which == "numpy" and numpy and states["numpy"]:
        numpy.random.set_state(states["numpy"])
    elif which == "made":
        for generator, state in zip(_made, states["made"]):  # noqa: B905
            generator.bit_generator.state = state
    elif which == "instances":
        for reference, state in zip(_instances, states["instances"]):  # noqa: B905
            instance = reference()
            if instance is not None and state is not None:
                instance.setstate(state)
