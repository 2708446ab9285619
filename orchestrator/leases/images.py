"""Which image a new machine boots: one that `orch image bake` made of the same lock, on the same base.

An image only saves time. What is in it is verified as on every machine, and what differs is installed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator import stack
from orchestrator.errors import OrchError, ProviderError
from orchestrator.model import LABEL_BASE, LABEL_STACK, ImageState, MachineImage, Offer, Provider, clouds
from orchestrator.plan import Plan
from orchestrator.profile import Profile
from orchestrator.session.project import Project
from orchestrator.session.session import read_lock

_SLUG = 40


def labels_of(wanted: Profile, offer: Offer) -> dict[str, str]:
    """Return the labels of an image for this profile and such machines. Raise OrchError if the lock cannot be
    read.
    """
    base = [offer.arch, offer.accelerator or "", wanted.image or "", _own_image(wanted) or ""]
    pins = [stack.lock_digest(read_lock(wanted)), str(wanted.stack.python or "")]
    return {LABEL_STACK: _digest(pins), LABEL_BASE: _digest(base)}


def name_of(wanted: Profile, labels: Mapping[str, str]) -> str:
    """Return the name of an image by its contents: `orch-NAME-DIGEST`."""
    slug = re.sub(r"[^a-z0-9]+", "-", wanted.name.lower()).strip("-")[:_SLUG].strip("-")
    return "-".join(part for part in ("orch", slug, _digest(sorted(labels.items()))[:12]) if part)


@dataclass(frozen=True)
class Images:
    """The images that could serve a profile; none if it names an image of its own."""

    wanted: Profile
    found: tuple[MachineImage, ...] = ()

    def for_offer(self, offer: Offer) -> MachineImage | None:
        """Return the newest image that a machine of `offer` can boot."""
        if not self.found:
            return None
        labels = labels_of(self.wanted, offer)
        fitting = [
            image
            for image in self.found
            if image.state is ImageState.AVAILABLE
            and labels.items() <= image.labels.items()
            and image.region in ("", offer.region)
            and image.disk <= self.wanted.resources.disk
        ]
        return max(fitting, key=lambda image: image.created_at, default=None)

    def shown_in(self, planned: Plan) -> Plan:
        """Return the plan with the image of its first offer."""
        image = self.for_offer(planned.offers[0]) if planned.offers else None
        return replace(planned, image=image.name) if image else planned


def images_for(provider: Provider, wanted: Profile) -> Images:
    """Ask the cloud for the images of the profile's lock. A refusal is no error: without an image everything
    is installed.
    """
    if not _may_choose(wanted):
        return Images(wanted)
    try:
        return Images(wanted, tuple(provider.images({})))
    except ProviderError:
        return Images(wanted)


def recorded_images(project: Project, wanted: Profile) -> Images:
    """Return the images that this project made and has not deleted, by its ledgers; no cloud is asked."""
    if not _may_choose(wanted):
        return Images(wanted)
    return Images(wanted, tuple(_recorded(project, wanted.cloud)))


def _recorded(project: Project, cloud: str) -> Iterable[MachineImage]:
    from datetime import UTC, datetime

    for lease in project.leases():
        made = lease.image
        if made is not None and made.cloud == cloud:
            at = datetime.fromtimestamp(lease.opened_at, UTC)
            facts = (ImageState.AVAILABLE, made.labels, at, made.region, made.disk, made.stored)
            yield MachineImage(made.cloud, made.name, "", *facts)


def _may_choose(wanted: Profile) -> bool:
    if wanted.image is not None or _own_image(wanted) or not clouds.exists(wanted.cloud):
        return False
    if clouds.traits(wanted.cloud).images is None:
        return False
    try:
        read_lock(wanted)
    except OrchError:  # reported by whoever installs it
        return False
    return True


def _own_image(wanted: Profile) -> str:
    """Return the image that the environment names for the cloud of the profile."""
    variable = clouds.traits(wanted.cloud).image_variable if clouds.exists(wanted.cloud) else ""
    return os.environ.get(variable, "") if variable else ""


def _digest(parts: Sequence[object]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
