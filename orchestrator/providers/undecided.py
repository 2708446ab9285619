"""Mark refusals after which the machine may exist all the same, because they came after an accepted create
call.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.errors import Fault, ProviderError

_DENY_ALL = (Fault.CAPACITY, Fault.QUOTA)
"""These answers mean that the cloud has looked for the machine, so no earlier call created it either."""


@contextmanager
def undecided() -> Iterator[None]:
    """Mark the refusals raised in the block, which follows a call that may have created the machine."""
    try:
        yield
    except ProviderError as error:
        error.undecided = True
        raise


def note_repeated(error: ProviderError) -> None:
    """Mark the refusal of a repeated call: the earlier call, which got no answer, may have created the
    machine.
    """
    error.undecided = error.undecided or error.fault not in _DENY_ALL
