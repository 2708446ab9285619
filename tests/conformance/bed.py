"""A provider under test, and the clock by which its time passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from orchestrator.model import LABEL_LEASE, Machine, MachineSpec, MachineState, Need, Offer, Provider

PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGtQzVn0VdkT0Wm2yQ0nXUkPSpPkXyBzQkq5dlqCqk0a nobody"
LABELS = {LABEL_LEASE: "conformance", "colour": "blue"}


@dataclass(frozen=True)
class Bed:
    """A provider under test, what to ask of it, and how its time passes (seconds since the epoch).

    `brief_s` is a short time to a deadline that it can keep; `unsold` a type that it does not have, where
    the type alone says how large a machine is; `tells_end`: it tells when a machine was ended.
    `reaches`: whether a connection from a machine to an address and port comes about; None if it connects no
    machines; `groups`: what is left of groups; `isolates`: machines have networks of their own; `outlives`:
    machines and groups outlive the process that made them.
    """

    provider: Provider
    need: Need
    disk: int
    now: Callable[[], float]
    rest: Callable[[], None]
    brief_s: float = 3
    unsold: str = ""
    tells_end: bool = True
    reaches: Callable[[Machine, str, int], bool] | None = None
    groups: Callable[[], Sequence[str]] = tuple
    isolates: bool = True
    outlives: bool = True

    def offer(self) -> Offer:
        return self.provider.offers(self.need)[0]

    def spec(
        self, name: str, attempt: int = 1, *, lasts: float = 600, clock_off: float = 0, **labels: str
    ) -> MachineSpec:
        """`clock_off`: by how many seconds the clock is wrong of whoever asks for the machine."""
        return MachineSpec(
            id=name,
            attempt=attempt,
            offer=self.offer(),
            disk=self.disk,
            deadline=datetime.fromtimestamp(self.now(), UTC) + timedelta(seconds=lasts + clock_off),
            labels={**LABELS, **labels},
            ssh_public_key=PUBLIC_KEY,
            lasts=lasts,
        )

    def await_that(self, holds: Callable[[], bool], patience_s: float = 60, rests: int = 1) -> None:
        """Until it holds; fails where it does not within `patience_s` of the provider's own time.

        Several `rests` before it is asked again are for what takes long: each question is work for the cloud.
        """
        end = self.now() + patience_s
        while not holds():
            assert self.now() < end, "it never came to hold"
            for _ in range(rests):
                self.rest()

    def names(self, **labels: str) -> list[str]:
        return sorted(machine.name for machine in self.provider.list({**LABELS, **labels}))

    def find(self, machine: Machine) -> Machine | None:
        found = [other for other in self.provider.list(LABELS) if other.id == machine.id]
        assert len(found) <= 1
        return found[0] if found else None

    def is_running(self, machine: Machine) -> bool:
        found = self.find(machine)
        return found is not None and found.state is MachineState.RUNNING


class Clock:
    """Time that passes only when somebody rests."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
