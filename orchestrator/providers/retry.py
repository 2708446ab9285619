"""A provider that repeats the calls of another provider after transient errors."""

from __future__ import annotations

import random as _random
import time as _time
from collections.abc import Callable, Sequence
from typing import TypeVar

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import (
    Ending,
    Endpoint,
    Labels,
    Machine,
    MachineImage,
    MachineSpec,
    Need,
    NotYet,
    Offer,
    Provider,
)
from orchestrator.model.backoff import Backoff
from orchestrator.providers import undecided

R = TypeVar("R")


class RetryingProvider:
    """Repeat calls that failed with TRANSIENT or BUSY, after the pauses of Backoff, for at most `deadline_s`
    per call.

    Every call can be repeated, also `create`, because its spec identifies the machine. Other faults are not
    repeated: after UNKNOWN, only `list` shows whether a machine was created. The last error is raised
    unchanged.
    """

    def __init__(
        self,
        inner: Provider,
        *,
        deadline_s: float = 120.0,
        base_s: float = 0.5,
        cap_s: float = 20.0,
        clock: Callable[[], float] = _time.monotonic,
        sleep: Callable[[float], None] = _time.sleep,
        random: Callable[[], float] = _random.random,
    ) -> None:
        self.name = inner.name
        self.list_lag_s = inner.list_lag_s
        self.inner = inner
        self._deadline_s = deadline_s
        self._backoff = Backoff(base_s, cap_s, clock, sleep, random)

    def offers(self, need: Need) -> Sequence[Offer]:
        return self._persist(lambda: self.inner.offers(need))

    def create(self, spec: MachineSpec) -> Machine:
        unanswered = False

        def once() -> Machine:
            nonlocal unanswered
            try:
                return self.inner.create(spec)
            except ProviderError as error:
                if unanswered:
                    undecided.note_repeated(error)
                unanswered = unanswered or error.fault is Fault.TRANSIENT
                raise

        return self._persist(once)

    def list(self, labels: Labels) -> Sequence[Machine]:
        return self._persist(lambda: self.inner.list(labels))

    def find(self, machine: Machine) -> Machine | None:
        return self._persist(lambda: self.inner.find(machine))

    def delete(self, machine: Machine) -> None:
        self._persist(lambda: self.inner.delete(machine))

    def guard(self, machine: Machine, lasts: float) -> Machine:
        return self.inner.guard(machine, lasts)

    def forget(self, machine: Machine) -> None:
        self.inner.forget(machine)

    def endpoint(self, machine: Machine) -> Endpoint | NotYet | None:
        return self._persist(lambda: self.inner.endpoint(machine))

    def ending(self, machine: Machine) -> Ending | None:
        return self._persist(lambda: self.inner.ending(machine))

    def join(self, group: str, machines: Sequence[Machine], ports: range) -> Sequence[str]:
        return self._persist(lambda: self.inner.join(group, machines, ports))

    def separate(self, group: str) -> None:
        self._persist(lambda: self.inner.separate(group))

    def prune(self, *, dry_run: bool = False) -> Sequence[str]:
        return self._persist(lambda: self.inner.prune(dry_run=dry_run))

    def bake(self, machine: Machine, name: str, labels: Labels) -> MachineImage:
        return self._persist(lambda: self.inner.bake(machine, name, labels))

    def images(self, labels: Labels) -> Sequence[MachineImage]:
        return self._persist(lambda: self.inner.images(labels))

    def delete_image(self, image: MachineImage) -> None:
        self._persist(lambda: self.inner.delete_image(image))

    def require_reach(self, machine: Machine) -> None:
        self._persist(lambda: self.inner.require_reach(machine))

    def principal(self) -> str:
        return self.inner.principal()

    def vouch(self, machine: Machine, host_keys: Sequence[str]) -> None:
        self._persist(lambda: self.inner.vouch(machine, host_keys))

    def _persist(self, call: Callable[[], R]) -> R:
        end = self._backoff.clock() + self._deadline_s

        def again(error: Exception, pause: float) -> bool:
            passing = isinstance(error, ProviderError) and error.fault in (Fault.TRANSIENT, Fault.BUSY)
            return passing and self._backoff.clock() + pause <= end

        try:
            return self._backoff.call(call, again)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> ProviderError:
        """Return the error for an answer without the expected fields: whether the call took effect is
        unknown.
        """
        return ProviderError(
            Fault.UNKNOWN,
            f"{self.name} gave an invalid answer ({type(error).__name__}: {error}).",
            code="UnreadableAnswer",
        )
