"""The part of Provider for clouds that create nothing except the machine."""

from __future__ import annotations

from orchestrator.model import Machine


class NothingBeside:
    """Mixin for clouds whose machines end by themselves and leave nothing else behind."""

    def guard(self, machine: Machine, lasts: float) -> Machine:  # noqa: ARG002
        return machine

    def forget(self, machine: Machine) -> None:
        """Do nothing: nothing was created apart from the machine."""
