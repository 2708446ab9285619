"""orch catalog: show and refresh the recorded machine types and prices."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from orchestrator.cli.groups import App
from orchestrator.cli.options import Json
from orchestrator.cli.output import emit, guarded
from orchestrator.cli.verbs import Verb
from orchestrator.model import clouds
from orchestrator.model.counted import counted

app = App(name="catalog", help="Show or refresh the recorded machine types and prices.")


def _which() -> str:
    named = clouds.elsewhere()
    return f"{', '.join(named)}. Default: {'both' if len(named) == 2 else 'all'}."


Clouds = Annotated[list[str] | None, typer.Argument(metavar="[CLOUD...]", help=_which())]

_SHOWN = 8


@app.command(cls=Verb)
@guarded
def refresh(
    clouds: Clouds = None,
    region: Annotated[
        str | None,
        typer.Option(
            "--region",
            metavar="REGION",
            help="Fetch one region only. Default: on AWS the configured region, on Google all regions.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Fetch current types and prices from the clouds and cache them."""
    from orchestrator.api import catalog

    renewed = catalog.refresh(clouds or (), region=region)
    text = "\n".join(_renewed(each) for each in renewed)
    emit("catalog.refresh", {"catalogs": renewed}, as_json, text)


@app.command(cls=Verb)
@guarded
def show(clouds: Clouds = None, as_json: Json = False) -> None:
    """Show how many types and prices are recorded, and how old they are."""
    from orchestrator.api import catalog

    shown = catalog.show(clouds or ())
    emit("catalog.show", {"catalogs": shown}, as_json, "\n\n".join(_shown(each) for each in shown))


def _renewed(each: dict[str, Any]) -> str:
    regions = each["regions"]
    where = regions[0] if len(regions) == 1 else counted(len(regions), "region")
    lines = [f"{each['cloud']}: {counted(each['types'], 'type')} in {where}, as of {each['date']}"]
    if each["unpriced"]:
        some = ", ".join(each["unpriced"][:_SHOWN])
        more = ", …; --json lists all" if len(each["unpriced"]) > _SHOWN else ""
        lines.append(
            f"  {len(each['unpriced'])} without a known price, so `orch up` does not use them: {some}{more}"
        )
    return "\n".join(lines)


def _shown(each: dict[str, Any]) -> str:
    types, prices = counted(each["types"], "type"), counted(each["prices"], "price")
    regions = counted(len(each["regions"]), "region")
    lines = [f"{each['cloud']}: {types}, {prices} in {regions}, as of {each['date']}"]
    lines.append(f"  accelerators: {', '.join(each['accelerators'])}")
    lines += [f"  {line}" for line in (*each["sources"], *each["notes"])]
    if each["warning"]:
        lines.append(f"  {each['warning']}")
    return "\n".join(lines)
