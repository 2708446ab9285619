"""Machine images that orch made, and how a name and labels tell what is in one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

LABEL_STACK = "orch-stack"
"""The digest of the lock whose packages the image holds."""
LABEL_BASE = "orch-base"
"""The digest of what the image was made from: processor, accelerator, and image that was named."""

NAME = re.compile(r"[a-z](?:[-a-z0-9]{1,61}[a-z0-9])")
"""The names that every cloud accepts: a letter, then letters, digits and hyphens; 3 to 63 characters."""

_GIB = 1 << 30


class ImageState(StrEnum):
    PENDING = "pending"
    AVAILABLE = "available"
    FAILED = "failed"  # boots no machine and may cost; only `delete_image` ends it


@dataclass(frozen=True)
class MachineImage:
    """An image of a machine's disk. One that was deleted completely is not listed.

    `reference`: what `MachineSpec.image` takes. `region`: "" if machines of every region can boot it. `disk`:
    bytes of the smallest disk that holds it. `size`: bytes that are stored; None if the cloud does not tell.
    """

    provider: str
    name: str
    reference: str
    state: ImageState
    labels: Mapping[str, str]
    created_at: datetime
    region: str = ""
    disk: int = 0
    size: int | None = None
    detail: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def as_json(self) -> dict[str, Any]:
        """Return the image as plain data: sizes in bytes, times in ISO 8601."""
        return {
            **asdict(self),
            "state": str(self.state),
            "labels": dict(self.labels),
            "created_at": self.created_at.isoformat(),
            "detail": dict(self.detail),
        }


@dataclass(frozen=True)
class ImageMarket:
    """What a cloud takes for stored images, in US dollars per GiB and month, as in region `priced_in`."""

    usd_gib_month: float
    priced_in: str = ""

    def usd_month(self, image: MachineImage) -> float:
        """Return the most that the image costs in US dollars a month."""
        return self.usd_month_of(image.disk, image.size)

    def usd_month_of(self, disk: int, size: int | None) -> float:
        """Return the same for a disk and what is stored of it, in bytes; `size`: None if unknown."""
        return round(self.usd_gib_month * (disk if size is None else size) / _GIB, 4)
