"""orch setup: prepare a cloud account for the first `orch up`."""

from __future__ import annotations

import shlex
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
    undo: Annotated[bool, typer.Option("--undo", help="Remove what an earlier setup created.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    source: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="CIDR", help="Addresses that may use ssh. Default: your public address."
        ),
    ] = None,
    region: Annotated[
        str | None, typer.Option("--region", metavar="REGION", help="Default: the configured region.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Prepare a cloud account: allow ssh from your address.

    On Google it also enables the APIs. It lists the changes, asks, and creates only what is missing; nothing
    that it creates costs money.
    """
    from orchestrator.api.setup import setup as setup_
    from orchestrator.cli import progress

    given = {"--from": source, "--region": region}
    options = [word for name, value in given.items() if value for word in (name, value)]
    again = shlex.join(["orch", "setup", cloud, *options, *(["--undo"] if undo else []), "--yes"])
    done = setup_(
        cloud,
        source=source,
        region=region,
        undo=undo,
        approve=_ask(yes, undo, again),
        progress=progress.progress(),
    )
    changed = [{"name": step.name, "detail": step.detail} for step in done.changed]
    verb = "Removed" if undo else "Created"
    nothing = "There is nothing to remove." if undo else "Everything is set up already."
    said = "\n".join(f"{verb}: {each['name']} ({each['detail']})" for each in changed) or nothing
    following = "" if undo else f"\nNext: orch doctor {cloud}"
    value = {"cloud": cloud, "where": done.where, "undo": undo, "changed": changed}
    emit("setup", value, as_json, f"{done.where}\n{said}{following}")


def _ask(yes: bool, undo: bool, again: str) -> Approve:
    """Return the function that asks. `again`: the same command with --yes."""

    def approve(where: str, steps: Sequence[SetupStep]) -> bool:
        from orchestrator.cli.terminal import ours
        from orchestrator.errors import UsageError

        print(ours(f"In {where}, this will be {'removed' if undo else 'created'}:"), file=sys.stderr)
        for step in steps:
            print(ours(f"  {step.name}: {step.detail}"), file=sys.stderr)
        if yes:
            return True
        if not sys.stdin.isatty():
            raise UsageError("This needs your approval.", next_command=again)
        print("Continue? [y/N] ", end="", file=sys.stderr, flush=True)
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    return approve
