"""orch setup: what an account must have before the first `up`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.options import Json
from orchestrator.cli.output import emit, guarded
from orchestrator.model import clouds

if TYPE_CHECKING:
    from orchestrator.api.setup import Approve
    from orchestrator.model.setup import SetupStep


@guarded
def setup(
    cloud: Annotated[str, typer.Argument(metavar="|".join(clouds.elsewhere()), help="The cloud.")],
    undo: Annotated[bool, typer.Option("--undo", help="Remove what setup has made.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="CIDR", help="Where ssh may come from; default: your public address."),
    ] = None,
    region: Annotated[str | None, typer.Option("--region", help="Default: the one in use.")] = None,
    as_json: Json = False,
) -> None:
    """Make in your account what `up` needs: an opening for ssh from your address, and nothing that costs.

    It lists what it will make and asks. A second call makes what is not there yet.
    """
    from orchestrator.api.setup import setup as setup_
    from orchestrator.cli import progress

    done = setup_(
        cloud,
        source=source,
        region=region,
        undo=undo,
        approve=_ask(yes, undo),
        progress=progress.progress(),
    )
    changed = [{"name": step.name, "detail": step.detail} for step in done.changed]
    verb = "Removed" if undo else "Made"
    nothing = "Nothing of setup is there." if undo else "Everything is there already."
    said = "\n".join(f"{verb}: {each['name']} ({each['detail']})" for each in changed) or nothing
    following = "" if undo else f"\nNext: orch doctor {cloud}"
    value = {"cloud": cloud, "where": done.where, "undo": undo, "changed": changed}
    emit("setup", value, as_json, f"{done.where}\n{said}{following}")


def _ask(yes: bool, undo: bool) -> Approve:
    def approve(where: str, steps: Sequence[SetupStep]) -> bool:
        from orchestrator.cli.terminal import ours
        from orchestrator.errors import UsageError

        print(ours(f"In {where}, this will be {'removed' if undo else 'made'}:"), file=sys.stderr)
        for step in steps:
            print(ours(f"  {step.name}: {step.detail}"), file=sys.stderr)
        if yes:
            return True
        if not sys.stdin.isatty():
            raise UsageError("Nobody can be asked here.", next_command="the same with --yes")
        print("Go on? [y/N] ", end="", file=sys.stderr, flush=True)
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    return approve
