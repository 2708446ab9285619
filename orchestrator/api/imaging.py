"""image bake, list, delete: machine images that hold a profile's packages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.model import MachineImage, Progress
from orchestrator.model.progress import as_progress
from orchestrator.profile import Profile, load
from orchestrator.session.project import Project

if TYPE_CHECKING:
    from orchestrator.leases.bake import Baked
    from orchestrator.leases.consent import Approve
    from orchestrator.leases.image_list import DeletedImage


def bake_image(
    profile: str | Path | Profile,
    *,
    name: str | None = None,
    overrides: Sequence[str] = (),
    folder: Path | str | None = None,
    approve: Approve | None = None,
    progress: Progress | Callable[[str], None] | None = None,
) -> Baked:
    """Make a machine image that holds the profile's packages; a later `up` boots it by itself.

    Creates a machine, installs the packages, removes keys and secrets, makes the image, deletes the machine.
    Safe to repeat: an image with the same contents is returned. `name`: default: by its contents. The image
    costs money until `delete_image`. Raises what `up` raises, and UsageError for a cloud without images.
    """
    wanted = profile if isinstance(profile, Profile) else load(Path(profile), overrides=overrides, files=True)
    from orchestrator.leases.bake import BakeRequest, bake

    tell = as_progress(progress)
    return bake(BakeRequest(Project.at(folder), wanted, overrides, name, approve, tell))


def list_images(
    clouds: Sequence[str] = (), *, folder: Path | str | None = None
) -> tuple[Sequence[MachineImage], dict[str, str]]:
    """Return the images that orch made, and the clouds that refused, each with its reason.

    `clouds`: default: this computer, and the clouds of this project's leases.
    """
    from orchestrator.leases.image_list import listed

    return listed(Project.at(folder), clouds)


def delete_image(
    name: str, clouds: Sequence[str] = (), *, folder: Path | str | None = None
) -> Sequence[DeletedImage]:
    """Delete the images with this name, with what is stored for them. Raises UsageError if there is none."""
    from orchestrator.leases.image_list import delete

    return delete(Project.at(folder), name, clouds)
