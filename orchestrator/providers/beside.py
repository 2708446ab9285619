"""Mixins with the methods of Provider that some clouds do not need."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import Labels, Machine, MachineImage


class NothingBeside:
    """Mixin for clouds that create nothing except machines, which end by themselves."""

    def guard(self, machine: Machine, lasts: float) -> Machine:  # noqa: ARG002
        return machine

    def forget(self, machine: Machine) -> None:
        """Do nothing: nothing was created apart from the machine."""

    def prune(self, *, dry_run: bool = False) -> Sequence[str]:  # noqa: ARG002
        """Return nothing: what connects machines ends with them."""
        return ()


class NoImages:
    """Mixin for clouds on which orch creates no images. Their traits have `images=None`."""

    name: str

    def bake(self, machine: Machine, name: str, labels: Labels) -> MachineImage:  # noqa: ARG002
        raise ProviderError(
            Fault.INVALID, f"orch cannot create images of machines on {self.name}.", code="NoImages"
        )

    def images(self, labels: Labels) -> Sequence[MachineImage]:  # noqa: ARG002
        return ()

    def delete_image(self, image: MachineImage) -> None:
        """Do nothing: there is none."""
