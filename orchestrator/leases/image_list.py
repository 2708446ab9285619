"""The images that orch made on the clouds of a project, what they cost, and their deletion."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.errors import Fault, OrchError, ProviderError, UsageError
from orchestrator.leases.bake import require_images
from orchestrator.ledger.events import ImageDeleted
from orchestrator.model import MachineImage, clouds
from orchestrator.providers import open_provider
from orchestrator.session.project import Project

_GONE_LIMIT_S = 300.0


@dataclass(frozen=True)
class DeletedImage:
    """A deleted image; `usd_month` is what it no longer costs."""

    image: MachineImage
    usd_month: float | None


def image_price(image: MachineImage) -> float | None:
    """Return the most that the image costs in US dollars a month; None if the cloud's price is unknown."""
    market = clouds.traits(image.provider).images if clouds.exists(image.provider) else None
    return market.usd_month(image) if market else None


def listed(project: Project, asked: Sequence[str]) -> tuple[Sequence[MachineImage], dict[str, str]]:
    """Return the images, newest first, and the clouds that refused, each with its reason.

    Raise ProviderError if the only cloud refuses, UsageError for a cloud without images that was named.
    """
    found: list[MachineImage] = []
    refused: dict[str, str] = {}
    names = _clouds(project, asked)
    for cloud in names:
        try:
            found += open_provider(cloud).images({})
        except ProviderError as error:
            if len(names) == 1:
                raise
            refused[cloud] = error.message
    return sorted(found, key=lambda image: image.created_at, reverse=True), refused


def delete(project: Project, name: str, asked: Sequence[str]) -> Sequence[DeletedImage]:
    """Delete every image of that name, and confirm that it is gone."""
    found, refused = listed(project, asked)
    meant = [image for image in found if image.name == name]
    if not meant:
        silent = "".join(f" {cloud} was not asked: {why}" for cloud, why in refused.items())
        raise UsageError(
            f"There is no image {name!r} made by orch on {', '.join(_clouds(project, asked))}.{silent}",
            next_command="orch image list",
        )
    return [_deleted(project, image) for image in meant]


def _deleted(project: Project, image: MachineImage) -> DeletedImage:
    provider = open_provider(image.provider)
    again = shlex.join(["orch", "image", "delete", image.name])
    try:
        provider.delete_image(image)
        end = time.monotonic() + _GONE_LIMIT_S
        while any((one.name, one.region) == (image.name, image.region) for one in provider.images({})):
            if time.monotonic() > end:
                text = f"The image {image.name} is still listed after {_GONE_LIMIT_S:.0f} s."
                raise ProviderError(Fault.TRANSIENT, text, code="ImageStillThere")
            time.sleep(1.0)
    except OrchError as error:
        error.exists = error.exists or f"The image {image.name} may still exist and cost."
        error.next_command = error.next_command or again
        raise
    for lease in project.leases():
        if lease.image is not None and (lease.image.name, lease.image.cloud) == (image.name, image.provider):
            project.ledger(lease.id).record(ImageDeleted(image.name))
    return DeletedImage(image, image_price(image))


def _clouds(project: Project, asked: Sequence[str]) -> Sequence[str]:
    for cloud in asked:
        require_images(cloud)
    if asked:
        return tuple(dict.fromkeys(asked))
    leased = {str(lease.profile["cloud"]) for lease in project.leases()}
    known = [name for name in clouds.names() if clouds.traits(name).images is not None]
    return tuple(name for name in known if clouds.is_here(name) or name in leased)
