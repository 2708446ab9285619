"""Check names of images, by the rules of all clouds."""

from __future__ import annotations

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import MachineImage
from orchestrator.model.images import NAME


def require_image_name(name: str) -> None:
    """Raise INVALID unless every cloud accepts `name` for an image."""
    if not NAME.fullmatch(name):
        raise ProviderError(
            Fault.INVALID,
            f"{name[:80]!r} is not a valid name of an image: a lower-case letter, then letters, digits and "
            "hyphens, "
            "3 to 63 characters, no hyphen at the end.",
            code="ImageName",
        )


def taken(image: MachineImage) -> ProviderError:
    """Return the error for a name that another image has already."""
    where = f" in {image.region}" if image.region else ""
    return ProviderError(
        Fault.CONFLICT,
        f"Another image with the name {image.name} and other contents exists{where}.",
        code="ImageNameTaken",
        next_command=f"orch image delete {image.name}    # or choose another --name",
    )
