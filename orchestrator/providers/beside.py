"""What a provider makes beside a machine, where it makes nothing."""

from __future__ import annotations

from orchestrator.model import Machine


class NothingBeside:
    """The part of Provider for clouds whose machines end by themselves and leave nothing else."""

    def guard(self, machine: Machine, lasts: float) -> Machine:  # noqa: ARG002
        return machine

    def forget(self, machine: Machine) -> None:
        """Nothing was made beside it."""
