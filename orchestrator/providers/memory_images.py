"""The images of the emulated cloud inside this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import ImageState, Labels, MachineImage
from orchestrator.providers.image_names import require_image_name, taken

_HELD = 1 << 30


class MemoryImages:
    """Stored images by name. They become available `stored_after` seconds after they were made, by
    `clock`.
    """

    def __init__(self, clock: Callable[[], float], stored_after: float) -> None:
        self._clock = clock
        self._stored_after = stored_after
        self._images: dict[str, MachineImage] = {}

    def known(self, name: str, labels: Labels) -> MachineImage | None:
        """Return the image with this name. Raise CONFLICT if it has other labels, INVALID for a bad name."""
        require_image_name(name)
        found = self._images.get(name)
        if found is not None and found.labels != dict(labels):
            raise taken(found)
        return self._as_seen(found) if found else None

    def add(self, name: str, labels: Labels, disk: int) -> MachineImage:
        now = datetime.fromtimestamp(self._clock(), UTC)
        self._images[name] = MachineImage(
            "memory", name, name, ImageState.PENDING, dict(labels), now, disk=disk, size=_HELD
        )
        return self._as_seen(self._images[name])

    def having(self, labels: Labels) -> Sequence[MachineImage]:
        seen = map(self._as_seen, self._images.values())
        return [image for image in seen if labels.items() <= image.labels.items()]

    def delete(self, name: str) -> None:
        self._images.pop(name, None)

    def require(self, name: str | None) -> None:
        """Raise INVALID if the name is that of an orch image that does not exist; all other names count as
        existing images.
        """
        if name is not None and name.startswith("orch-") and name not in self._images:
            raise ProviderError(Fault.INVALID, f"There is no image {name}.", code="NoSuchImage")

    def _as_seen(self, image: MachineImage) -> MachineImage:
        stored = self._clock() - image.created_at.timestamp() >= self._stored_after
        return replace(image, state=ImageState.AVAILABLE if stored else ImageState.PENDING)
