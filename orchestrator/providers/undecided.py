"""What is refused after a create call was accepted does not say that no machine was made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.errors import Fault, ProviderError

_DENY_ALL = (Fault.CAPACITY, Fault.QUOTA)
"""A cloud that says so has looked for the machine first: earlier calls for it made none, either."""


@contextmanager
def undecided() -> Iterator[None]:
    """Mark the refusals of the block, which comes after a call that may have made the machine."""
    try:
        yield
    except ProviderError as error:
        error.undecided = True
        raise


def note_repeated(error: ProviderError) -> None:
    """Mark the refusal of a call that was made before without an answer: that one may have made it."""
    error.undecided = error.undecided or error.fault not in _DENY_ALL
