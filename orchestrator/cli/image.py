"""orch image: make, list and delete machine images that hold a profile's packages."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.cli.groups import App
from orchestrator.cli.options import Json, ProfilePath, Sets, chosen
from orchestrator.cli.output import emit, guarded
from orchestrator.cli.verbs import Verb

if TYPE_CHECKING:
    from orchestrator.model import MachineImage

app = App(name="image", help="Make, list or delete machine images that hold a profile's packages.")

Clouds = Annotated[
    list[str] | None,
    typer.Option(
        "--cloud", metavar="CLOUD", help="Only this cloud. Default: those of this project's leases."
    ),
]


@app.command(cls=Verb)
@guarded
def bake(
    profile: ProfilePath = None,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="Name of the image. Default: derived from its contents."),
    ] = None,
    sets: Sets = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask for confirmation before spending money.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Make an image with the packages of PROFILE, from which a later `orch up` boots automatically.

    Creates a machine, installs the packages, makes the image and deletes the machine. Safe to repeat. The
    image costs money until `orch image delete`.
    """
    from orchestrator import api
    from orchestrator.cli import approval, progress
    from orchestrator.report.images import baked_text

    profile = chosen(profile)
    changed = [word for each in sets or () for word in ("--set", each)]
    named = ["--name", name] if name else []
    made = api.bake_image(
        profile,
        name=name,
        overrides=sets or (),
        approve=approval.ask(yes, ["orch", "image", "bake", str(profile), *changed, *named]),
        progress=progress.progress(),
    )
    image = _plain(made.image)
    up = shlex.join(["orch", "up", str(profile), *changed])
    facts: dict[str, Any] = {"existed": made.existed, "cost": made.cost, "seconds": made.seconds}
    emit("image.bake", {"image": image, **facts}, as_json, baked_text(image, **facts, up=up))


@app.command("list", cls=Verb)
@guarded
def list_(clouds: Clouds = None, as_json: Json = False) -> None:
    """List the images that orch made, with what they hold and cost."""
    from orchestrator import api
    from orchestrator.report.images import images_text

    found, refused = api.list_images(clouds or ())
    images = [_plain(image) for image in found]
    emit("image.list", {"images": images, "refused": refused}, as_json, images_text(images, refused))


@app.command(cls=Verb)
@guarded
def delete(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The image, as `orch image list` shows it.")],
    clouds: Clouds = None,
    as_json: Json = False,
) -> None:
    """Delete an image and what is stored for it, and confirm that it is gone."""
    from orchestrator import api

    deleted = [_plain(each.image) for each in api.delete_image(name, clouds or ())]
    text = "\n".join(
        f"{each['name']} was deleted from {each['provider']}; it no longer costs anything."
        for each in deleted
    )
    emit("image.delete", {"images": deleted}, as_json, text)


def _plain(image: MachineImage) -> dict[str, Any]:
    from orchestrator.api import image_price

    return {**image.as_json(), "usd_month": image_price(image)}
