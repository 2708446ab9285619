"""orch down: end the machine; with --all, every machine of this user."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.options import Json
from orchestrator.cli.output import emit, guarded

if TYPE_CHECKING:
    from orchestrator.api import Target


_NOT_ASKED = "Asked: this computer, and clouds of leases at hand. For another: orch down --all --cloud aws"


@guarded
def down(
    lease: Annotated[
        str | None, typer.Argument(metavar="LEASE", help="Which one, where this folder has several.")
    ] = None,
    named: Annotated[str | None, typer.Option("--lease", help="The same, as other verbs say it.")] = None,
    discard: Annotated[bool, typer.Option("--discard", help="Lose results that were not pulled.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Every machine of yours: listed, and asked about, first.")
    ] = False,
    others: Annotated[
        bool, typer.Option("--others", help="With --all: machines of other owners too.")
    ] = False,
    clouds: Annotated[
        list[str] | None, typer.Option("--cloud", help="With --all: look there too; repeatable.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --all: do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """End the machine, prove that nothing is left, and say what it took."""
    from dataclasses import asdict

    from orchestrator import api
    from orchestrator.api import leases_elsewhere as elsewhere_
    from orchestrator.cli import progress
    from orchestrator.errors import EXIT_CONTACT, EXIT_RESULTS_LOST
    from orchestrator.report.lease import down_text

    report = api.down(
        lease or named,
        discard=discard,
        everything=everything,
        others=others,
        clouds=clouds or (),
        approve=_ask(yes, others, discard, clouds or ()),
        progress=progress.progress(),
    )
    elsewhere = elsewhere_() if not report.leases and not report.machines else ()
    value = {**asdict(report), "elsewhere": list(elsewhere)}
    emit("down", value, as_json, down_text(report, elsewhere))
    if everything and not clouds:
        print(_NOT_ASKED, file=sys.stderr)
    if not report.proven_gone:
        raise typer.Exit(EXIT_CONTACT)
    if report.lost:
        raise typer.Exit(EXIT_RESULTS_LOST)


def _ask(yes: bool, others: bool, discard: bool, clouds: Sequence[str]) -> Callable[[Sequence[Target]], bool]:
    """Show every machine; ask on a terminal, and refuse elsewhere without --yes."""

    def approve(targets: Sequence[Target]) -> bool:
        from orchestrator.api import command_of
        from orchestrator.cli.terminal import ours
        from orchestrator.errors import UsageError
        from orchestrator.report.lease import targets_text

        shown = [target.as_json() for target in targets]
        print(ours(targets_text(shown, others=others)), file=sys.stderr)
        doomed = [target for target in targets if target.mine or others]
        if yes or not doomed:
            return True
        if not sys.stdin.isatty():
            raise UsageError(
                f"This would end {len(doomed)} of them, and nobody can be asked here.",
                exists="Nothing was ended.",
                next_command=f"{command_of(discard=discard, others=others, clouds=clouds)} --yes",
            )
        print(f"End {len(doomed)} of them? [y/N] ", end="", file=sys.stderr, flush=True)
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    return approve
