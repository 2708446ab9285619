"""The parts of Provider for clouds that create nothing except machines."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import Labels, Machine, MachineImage


class NothingBeside:
    """Mixin for clouds whose machines end by themselves and leave nothing else behind."""

    def guard(self, machine: Machine, lasts: float) -> Machine:  # noqa: ARG002
        return machine

    def forget(self, machine: Machine) -> None:
        """Do nothing: nothing was created apart from the machine."""

    def prune(self, *, dry_run: bool = False) -> Sequence[str]:  # noqa: ARG002
        """Return nothing: what connects machines ends with them."""
        return ()


class NoImages:
    """Mixin for clouds of whose machines orch makes no images. Their traits have `images=None`."""

    name: str

    def bake(self, machine: Machine, name: str, labels: Labels) -> MachineImage:  # noqa: ARG002
        raise ProviderError(
            Fault.INVALID, f"orch makes no images of machines of {self.name}.", code="NoImages"
        )

    def images(self, labels: Labels) -> Sequence[MachineImage]:  # noqa: ARG002
        return ()

    def delete_image(self, image: MachineImage) -> None:
        """Do nothing: there is none."""
