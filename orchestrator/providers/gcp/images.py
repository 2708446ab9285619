"""Choose the image of a machine: the newest of an image family that Google maintains."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import Offer
from orchestrator.model.needs import is_before_turing

_DEEP_LEARNING = "deeplearning-platform-release"
_UBUNTU = "ubuntu-os-cloud"
_UBUNTU_DRIVERS = "ubuntu-os-accelerator-images"
_ARM = frozenset({"arm64", "aarch64"})


@dataclass(frozen=True)
class Family:
    """An image family: a name under which a project publishes its newest image."""

    project: str
    name: str


@dataclass(frozen=True)
class Image:
    """One image. `path` as projects/P/global/images/NAME; `disk_gib`: the smallest disk for it.
    `made_of`: for an image that orch made, the project of the image that its machine booted.
    """

    path: str
    disk_gib: int
    made_of: str = ""

    @property
    def origin(self) -> str:
        """The project that made the system in it."""
        return self.made_of or self.path.split("/")[1]


def families(offer: Offer) -> tuple[Family, ...]:
    """Return the families to try in order; one that no longer exists is skipped.

    GPU machines get images with NVIDIA's driver and CUDA, others plain Ubuntu.
    """
    arm = offer.arch in _ARM
    if not offer.accelerator:
        return (Family(_UBUNTU, "ubuntu-2404-lts-arm64" if arm else "ubuntu-2404-lts-amd64"),)
    if arm:  # there is no Deep Learning VM image for arm64
        return (Family(_UBUNTU_DRIVERS, "ubuntu-accelerator-2404-arm64-with-nvidia-580"),)
    newer = (
        Family(_DEEP_LEARNING, "common-cu129-ubuntu-2204-nvidia-580"),
        Family(_DEEP_LEARNING, "common-cu129-ubuntu-2404-nvidia-580"),
    )
    older = (Family(_DEEP_LEARNING, "common-cu128-ubuntu-2204-nvidia-570"),)
    last = (Family(_UBUNTU_DRIVERS, "ubuntu-accelerator-2404-amd64-with-nvidia-580"),)
    # Drivers from 580 on may have kernel modules that support no GPU before Turing.
    if is_before_turing(offer.accelerator):
        return (*older, *newer, *last)
    return (*newer, *older, *last)


@dataclass(frozen=True)
class Named:
    """The image that a profile names: a project, a name, and whether that can be an image or a family."""

    family: Family
    maybe_family: bool
    maybe_image: bool


def boots_securely(project: str) -> bool:
    """Return whether the images of this project work with Secure Boot.

    Ubuntu's kernel and modules are signed; NVIDIA's driver in Deep Learning VM images is not.
    """
    return project == _UBUNTU


def parse_name(reference: str, own_project: str) -> Named:
    """Parse `NAME` (in the caller's own project), `PROJECT/NAME`, or
    `projects/P/global/images/[family/]NAME`.
    """
    path = path_of(reference)
    whole = re.fullmatch(r"projects/([^/]+)/global/images/(family/)?([^/]+)", path)
    short = re.fullmatch(r"(?:([^/]+)/)?([^/]+)", path)
    if whole:
        return Named(Family(whole[1], whole[3]), maybe_family=bool(whole[2]), maybe_image=not whole[2])
    if short:
        return Named(Family(short[1] or own_project, short[2]), maybe_family=True, maybe_image=True)
    message = f"The image {reference!r} is neither [PROJECT/]NAME nor projects/P/global/images/[family/]NAME."
    raise ProviderError(Fault.INVALID, message, code="Image")


def resolve(candidates: Sequence[Family], newest: Callable[[Family], Image | None]) -> Image:
    """Return the image of the first family that still has one. `newest` returns None for a family that is
    gone.
    """
    for family in candidates:
        found = newest(family)
        if found is not None:
            return found
    names = ", ".join(f"{family.project}/{family.name}" for family in candidates)
    raise ProviderError(
        Fault.INVALID,
        f"No known image family exists any more: {names}.",
        code="ImageFamilies",
    )


def path_of(link: str) -> str:
    """Return projects/P/global/images/NAME for any URL of an image."""
    return link[link.index("projects/") :] if "projects/" in link else link
