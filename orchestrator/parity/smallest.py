"""Find a minimal sufficient subset of candidates by bisection with repeated runs. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def smallest_sufficient(items: Sequence[T], enough: Callable[[Sequence[T]], bool]) -> tuple[T, ...]:
    """Return a sufficient subset of `items`, in their order, from which no item can be removed.

    `items` must be sufficient. Halves are tried first, then the rest without each smaller piece, so that one
    cause among n is found with about 2·log2(n) calls of `enough`. If `enough` cannot decide, because no time
    is left, it must return False: the result is then sufficient, but possibly too large.
    """
    kept, pieces = list(items), 2
    while len(kept) > 1:
        size = -(-len(kept) // pieces)
        parts = [kept[at : at + size] for at in range(0, len(kept), size)]
        found = _found(kept, parts, enough)
        if found is not None:
            kept, pieces = found, 2 if len(found) < size * 2 else max(2, pieces - 1)
        elif size == 1:
            break
        else:
            pieces = min(len(kept), pieces * 2)
    return tuple(kept)


def _found(
    kept: Sequence[T], parts: Sequence[list[T]], enough: Callable[[Sequence[T]], bool]
) -> list[T] | None:
    """Return a part, or all but a part, that is sufficient by itself."""
    for part in parts:
        if enough(part):
            return part
    for part in parts if len(parts) > 2 else ():
        rest = [each for each in kept if not any(each is one for one in part)]
        if enough(rest):
            return rest
    return None
