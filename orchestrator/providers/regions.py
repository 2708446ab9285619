"""List the machines of all regions of a cloud. A region that refuses the credentials does not hide the
others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import Machine, Partial

_AT_ONCE = 8

T = TypeVar("T")


def list_regions(regions: Sequence[str], list_one: Callable[[str], Sequence[Machine]]) -> Sequence[Machine]:
    """List all regions in parallel.

    Raises Partial if some refuse with AUTH, and ProviderError if all refuse or if one fails for another
    reason; that may be temporary, so the call is repeated.
    """
    found, refused = ask_regions(regions, list_one)
    return Partial.of(found, refused) if refused else found


def ask_regions(
    regions: Sequence[str], ask: Callable[[str], Sequence[T]]
) -> tuple[list[T], dict[str, ProviderError]]:
    """Return the answers by region, and the errors of regions that refused with AUTH. Raise ProviderError as
    list_regions does.
    """

    def asked(region: str) -> Sequence[T] | ProviderError:
        try:
            return ask(region)
        except ProviderError as error:
            if error.fault is not Fault.AUTH:
                raise
            return error

    with ThreadPoolExecutor(max_workers=min(_AT_ONCE, len(regions))) as pool:
        answers = dict(zip(regions, pool.map(asked, regions), strict=True))
    refused = {region: one for region, one in answers.items() if isinstance(one, ProviderError)}
    if len(refused) == len(answers):
        raise next(iter(refused.values()))
    return [each for one in answers.values() if not isinstance(one, ProviderError) for each in one], refused
