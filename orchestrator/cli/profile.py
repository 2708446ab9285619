"""orch profile: what a training's input costs, and what a fix of it gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from orchestrator.cli.options import Json, duration
from orchestrator.cli.output import emit, guarded
from orchestrator.cli.terminal import ours
from orchestrator.errors import HostError, UsageError


@guarded
def profile(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- CMD...", help="What trains, here; default: orch.yaml's.")
    ] = None,
    attempt: Annotated[
        bool, typer.Option("--try", help="Try the fixes that can be imposed, and print the change.")
    ] = False,
    files: Annotated[
        bool, typer.Option("--files", help="Count opens and reads of each file (needs a C compiler).")
    ] = False,
    trace: Annotated[
        int,
        typer.Option(
            "--trace",
            min=0,
            metavar="STEPS",
            help="Also trace this many steps with TensorFlow's own profiler.",
        ),
    ] = 0,
    rounds: Annotated[
        int, typer.Option("--rounds", min=3, max=99, help="How often each kind of input is measured.")
    ] = 5,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.05, help="Seconds that one measurement lasts.")
    ] = 0.8,
    budget: Annotated[
        int, typer.Option("--budget", parser=duration, metavar="DURATION", help="For all measurements.")
    ] = "180s",  # type: ignore[assignment]  # parsed as if given
    staging: Annotated[
        str | None,
        typer.Option(
            "--staging",
            metavar="DIR",
            help="With --try: a folder on a fast disk, to try reading the data from a copy there.",
        ),
    ] = None,
    in_place: Annotated[
        bool,
        typer.Option("--in-place", help="Run in this folder, not in a copy; the script may write there."),
    ] = False,
    run_id: Annotated[str | None, typer.Option("--run-id", help="Name the run.")] = None,
    as_json: Json = False,
) -> None:
    """Measure what the input of a training costs: synthetic, cached, warm and cold, in a scratch run here."""
    from orchestrator import api
    from orchestrator.cli.progress import progress
    from orchestrator.report.profile import profile_text

    how = api.Options(attempt, files, trace, rounds, seconds, budget, staging)
    ran = api.profile(command or (), wish=how, in_place=in_place, run_id=run_id, progress=progress())
    value = ran.as_json()
    emit("profile", value, as_json, profile_text(value))
    if ran.failed:
        raise typer.Exit(6)


def analyse(run_id: str, lease: str | None, overrides: Sequence[str], as_json: bool) -> None:
    """The same on the leased machine, for a run that has come home: its text, or with --json its file."""
    from orchestrator.api import analyse as measure
    from orchestrator.cli import progress
    from orchestrator.report.profile import profile_text

    tell = progress.progress()
    try:
        found = measure(run_id, lease=lease, overrides=overrides, progress=tell)
    except HostError as lost:
        raise HostError(
            f"The run came home; what its input costs could not be measured: {lost.message}",
            exists=lost.exists,
            next_command="orch status --live",
        ) from lost
    if as_json:
        tell.say(f"What its input costs: {found.folder}/profile.json")
    else:
        print(f"\n{ours(profile_text(found.as_json()))}")


def refuse_detached(io_analyze: bool, detach: bool) -> None:
    """What is measured after a run needs somebody who waits for it."""
    if io_analyze and detach:
        raise UsageError(
            "--io-analyze measures after the run has come home, and --detach does not wait for that.",
            next_command="orch train --io-analyze",
        )
