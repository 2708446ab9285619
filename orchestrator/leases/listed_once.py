"""A provider whose machines are listed once, for questions about many leases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from orchestrator.model import LABEL_LEASE, Labels, Machine, Partial, Provider
from orchestrator.model.machines import unseen_in

if TYPE_CHECKING:
    from collections.abc import Mapping


class _ListedOnce:
    """Answers `list` from one list of all machines; everything else is asked of the provider."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self._all: Sequence[Machine] | None = None
        self._of_lease: dict[str, list[Machine]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._provider, name)

    def list(self, labels: Labels) -> Sequence[Machine]:
        every = self._listed()
        candidates = self._of_lease.get(labels[LABEL_LEASE], []) if LABEL_LEASE in labels else every
        found = tuple(machine for machine in candidates if _has(machine.labels, labels))
        unseen = unseen_in(every)
        return Partial.of(found, unseen) if unseen else found

    def _listed(self) -> Sequence[Machine]:
        if self._all is None:
            self._all = self._provider.list({})
            for machine in self._all:
                self._of_lease.setdefault(machine.labels.get(LABEL_LEASE, ""), []).append(machine)
        return self._all


def listed_once(provider: Provider) -> Provider:
    """Return the provider with a `list` that asks once, when it is first called."""
    return cast(Provider, _ListedOnce(provider))


def _has(given: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return all(given.get(name) == value for name, value in wanted.items())
