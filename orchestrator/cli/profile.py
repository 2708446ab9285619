"""orch profile: measure the cost of a training's input, and try fixes."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Annotated

import typer

from orchestrator.cli.options import Json, duration
from orchestrator.cli.output import emit, guarded
from orchestrator.cli.terminal import ours
from orchestrator.errors import HostError, UsageError

Trace = Annotated[
    int,
    typer.Option(
        "--trace",
        min=0,
        metavar="STEPS",
        help="Trace this many additional steps with TensorFlow's profiler.",
    ),
]
Rounds = Annotated[
    int,
    typer.Option("--rounds", min=3, max=99, metavar="N", help="How many times to measure each input."),
]
Staging = Annotated[
    str | None,
    typer.Option(
        "--staging",
        metavar="DIR",
        help="With --try: a folder on a fast disk. Also measures with a copy of the data there.",
    ),
]


@guarded
def profile(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="-- CMD...",
            help="The training command. Default: that of orch.yaml, with its lock's packages.",
        ),
    ] = None,
    attempt: Annotated[
        bool, typer.Option("--try", help="Try fixes, measure each and print the change to make.")
    ] = False,
    files: Annotated[
        bool, typer.Option("--files", help="Count the opens and reads of each file (needs a C compiler).")
    ] = False,
    trace: Trace = 0,
    rounds: Rounds = 5,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.05, metavar="S", help="Length of one measurement.")
    ] = 0.8,
    budget: Annotated[
        int,
        typer.Option("--budget", parser=duration, metavar="DURATION", help="Time limit of all measurements."),
    ] = "180s",  # type: ignore[assignment]  # parsed as if given
    staging: Staging = None,
    in_place: Annotated[
        bool,
        typer.Option("--in-place", help="Run in this folder instead of a copy; the script may write here."),
    ] = False,
    run_id: Annotated[str | None, typer.Option("--run-id", metavar="ID", help="Name the run.")] = None,
    as_json: Json = False,
) -> None:
    """Measure how long a training waits for its input data.

    A scratch run on this computer is fed synthetic, cached, warm and cold data in turn.
    """
    from orchestrator import api
    from orchestrator.cli.progress import progress
    from orchestrator.report.profile import profile_text

    how = api.Options(attempt, files, trace, rounds, seconds, budget, staging)
    ran = api.profile(command or (), wish=how, in_place=in_place, run_id=run_id, progress=progress())
    value = ran.as_json()
    again = shlex.join(["orch", "profile", *(["--", *command] if command else [])])
    then = f"\n\nNext: {again}    # once the command succeeds" if ran.failed else ""
    emit("profile", value, as_json, profile_text(value) + then)
    if ran.failed:
        raise typer.Exit(6)


def analyse(run_id: str, lease: str | None, overrides: Sequence[str], as_json: bool) -> None:
    """Measure on the leased machine after `train --io-analyze`; print the report, or with --json its path."""
    from orchestrator.api import analyse as measure
    from orchestrator.cli import progress
    from orchestrator.report.profile import profile_text

    tell = progress.progress()
    try:
        found = measure(run_id, lease=lease, overrides=overrides, progress=tell)
    except HostError as lost:
        raise HostError(
            f"The results were downloaded, but the input could not be measured: {lost.message}",
            exists=lost.exists,
            next_command="orch status --live",
        ) from lost
    if as_json:
        tell.say(f"Input measurement: {found.folder}/profile.json")
    else:
        print(f"\n{ours(profile_text(found.as_json()))}")


def refuse_detached(io_analyze: bool, detach: bool) -> None:
    """Refuse --io-analyze with --detach: the measurement follows the run."""
    if io_analyze and detach:
        raise UsageError(
            "--io-analyze measures after the run has ended; --detach does not wait that long.",
            next_command="orch train --io-analyze",
        )
