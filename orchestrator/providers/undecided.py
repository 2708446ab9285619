"""Mark refusals that do not exclude that a machine was created: they came after a create call was
accepted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.errors import Fault, ProviderError

_DENY_ALL = (Fault.CAPACITY, Fault.QUOTA)
"""A cloud that says so has looked for the machine first: earlier calls for it made none, either."""


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
