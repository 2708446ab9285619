"""Observe the arguments of a function before it is called, without changing them."""

from __future__ import annotations

import functools
from typing import Any, Callable, Optional


def writes(args: Any, kwargs: Any) -> bool:
    """Whether a call of FileIO or h5py.File opens for writing."""
    return not str(args[2] if len(args) > 2 else kwargs.get("mode", "r")).startswith("r")


def reads(args: Any, kwargs: Any) -> bool:
    return not writes(args, kwargs)


def before(
    owner: Any,
    method: str,
    place: int,
    name: str,
    hear: Callable[[Any], None],
    *,
    static: bool = False,
    unless: Optional[Callable[[Any, Any], bool]] = None,
) -> None:
    """Let `hear` see the argument at `place`, or named `name`, before each call."""
    original = getattr(owner, method)

    @functools.wraps(original)
    def hooked(*args: Any, **kwargs: Any) -> Any:
        try:
            if unless is None or not unless(args, kwargs):
                hear(args[place] if len(args) > place else kwargs.get(name))
        except Exception:
            pass  # a missing fact must not fail the job
        return original(*args, **kwargs)

    # AutoGraph must neither convert this function nor stop converting what it calls.
    hooked.autograph_info__ = {}  # type: ignore[attr-defined]
    setattr(owner, method, staticmethod(hooked) if static else hooked)
