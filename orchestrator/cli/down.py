"""orch down: delete the project's machine, or with --all every machine of this user."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.options import Json
from orchestrator.cli.output import emit, guarded

if TYPE_CHECKING:
    from orchestrator.api import Target


_NOT_ASKED = (
    "Checked this computer and the clouds of your leases. To check another cloud: orch down --all --cloud aws"
)


@guarded
def down(
    lease: Annotated[
        str | None, typer.Argument(metavar="LEASE", help="The lease, if the project has several.")
    ] = None,
    named: Annotated[
        str | None, typer.Option("--lease", metavar="NAME", help="Same as the argument LEASE.")
    ] = None,
    discard: Annotated[
        bool, typer.Option("--discard", help="Delete even if results were not pulled; they are lost.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Delete all your machines, after listing them and asking.")
    ] = False,
    others: Annotated[
        bool, typer.Option("--others", help="With --all: include machines of other owners.")
    ] = False,
    clouds: Annotated[
        list[str] | None,
        typer.Option("--cloud", metavar="CLOUD", help="With --all: also check this cloud. Repeatable."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --all: do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Delete the machine and confirm that nothing is left.

    Refuses while the machine holds results that were not pulled. Prints the time and cost of the lease.
    """
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
    """List the machines, then ask; without a terminal, refuse unless --yes was given."""

    def approve(targets: Sequence[Target]) -> bool:
        from orchestrator.api import command_of
        from orchestrator.cli.terminal import ours
        from orchestrator.errors import UsageError
        from orchestrator.model.counted import counted
        from orchestrator.report.lease import targets_text

        shown = [target.as_json() for target in targets]
        print(ours(targets_text(shown, others=others)), file=sys.stderr)
        doomed = [target for target in targets if target.mine or others]
        if yes or not doomed:
            return True
        if not sys.stdin.isatty():
            raise UsageError(
                f"This would delete {counted(len(doomed), 'machine')} and needs your approval.",
                exists="Nothing was deleted.",
                next_command=f"{command_of(discard=discard, others=others, clouds=clouds)} --yes",
            )
        question = f"Delete {counted(len(doomed), 'machine')}? [y/N] "
        print(ours(question), end="", file=sys.stderr, flush=True)
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    return approve
