"""Mark errors after which the machine may exist nevertheless, because they follow a create call that may have
been accepted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.errors import Fault, ProviderError

_DENY_ALL = (Fault.CAPACITY, Fault.QUOTA)
"""Faults that prove that the machine does not exist, so no earlier call created it either."""


@contextmanager
def undecided() -> Iterator[None]:
    """Mark the errors raised in the block, which follows a call that may have created the machine."""
    try:
        yield
    except ProviderError as error:
        error.undecided = True
        raise


def note_repeated(error: ProviderError) -> None:
    """Mark the error of a repeated call: the earlier call, without an answer, may have created the
    machine.
    """
    error.undecided = error.undecided or error.fault not in _DENY_ALL
