"""orch sweep: one profile with several parameter values; orch sweep status: its progress."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.cli.options import Json, Sets, chosen
from orchestrator.cli.output import emit, guarded
from orchestrator.errors import EXIT_CAPACITY, UsageError

if TYPE_CHECKING:
    from orchestrator.model.sweeps import Sweep

_STATUS = "status"


Which = Annotated[
    str | None, typer.Argument(metavar="[SWEEP]", help="With status: the sweep's id. Default: the last one.")
]
Matrix = Annotated[
    list[str] | None,
    typer.Option(
        "--matrix", metavar="KEY=V1,V2", help="Values of a parameter: lr=1e-3,1e-4, seed=1..5. Repeatable."
    ),
]
Metric = Annotated[
    str | None,
    typer.Option("--objective", metavar="METRIC[:max]", help="Metric of the best run. Default: the loss."),
]
Chooser = Annotated[
    str | None,
    typer.Option("--search", metavar="optuna:N", help="Let Optuna choose N runs, also from lr=1e-5..1e-1."),
]
Cluster = Annotated[
    str | None,
    typer.Option("--scheduler", metavar="URL", help="Use this Dask cluster: tls://host:8786."),
]
MaxPrice = Annotated[
    float | None,
    typer.Option(
        "--max-price",
        metavar="USD",
        min=0,
        help="Limit of the price of all machines together, in US dollars per hour.",
    ),
]
Budget = Annotated[
    float | None,
    typer.Option(
        "--budget",
        metavar="USD",
        min=0,
        help="Start no further run once the machines have cost this many US dollars.",
    ),
]


Detach = Annotated[
    bool,
    typer.Option(
        "--detach", help="Queue all runs on the machines and return; this computer may then be switched off."
    ),
]


@guarded
def sweep(
    profile: Annotated[
        str | None,
        typer.Argument(metavar="[PROFILE]", help="The profile; default: orch.yaml. Or: status."),
    ] = None,
    which: Which = None,
    matrix: Matrix = None,
    machines: Annotated[
        int, typer.Option("--machines", metavar="N", help="How many machines train at a time.")
    ] = 1,
    search: Chooser = None,
    scheduler: Cluster = None,
    objective: Metric = None,
    max_price: MaxPrice = None,
    budget: Budget = None,
    detach: Detach = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask for confirmation before spending money.")
    ] = False,
    sets: Sets = None,
    as_json: Json = False,
) -> None:
    """Train PROFILE once for each combination of parameter values, on several machines.

    `{lr}` in the profile's command stands for the value of lr; the run also has it as ORCH_PARAM_LR. Each
    combination is an ordinary run. Machines are created when a run needs one, and deleted at the end. A
    repeated call continues, also after --detach. `orch sweep status` shows its progress.
    """
    from orchestrator import api
    from orchestrator.report.sweep import sweep_text

    if profile == _STATUS:
        found, active = api.sweep_status(which)
        emit("sweep", {**found.as_json(), "active": active}, as_json, sweep_text(found, active=active))
        return
    if which is not None:
        raise UsageError(f"`orch sweep` takes no argument {which!r}.", next_command="orch sweep --help")
    options = {
        "machines": machines,
        "search": search,
        "scheduler": scheduler,
        "objective": objective,
        "max_price": max_price,
        "budget": budget,
        "detach": detach,
        "overrides": sets or (),
    }
    done, words = _carried_out(str(chosen(Path(profile) if profile else None)), matrix or [], yes, options)
    emit("sweep", {**done.as_json(), "next_command": words}, as_json, _text(done, words))
    if done.failed or not (done.succeeded or done.going_on):
        raise typer.Exit(_exit_code(done))


def _text(done: Sweep, words: str | None) -> str:
    from orchestrator.report.sweep import sweep_text

    if not words:
        return sweep_text(done)
    what = "follows the runs, collects the results, deletes the machines"
    return f"{sweep_text(done)}\nNext: {words}    # {what}; meanwhile: orch sweep status"


def _carried_out(
    profile: str, matrix: list[str], yes: bool, options: dict[str, Any]
) -> tuple[Sweep, str | None]:
    """Return the sweep, and the command that collects what goes on without this process, if anything does."""
    from orchestrator import api
    from orchestrator.cli import approval, progress
    from orchestrator.report.sweep import point_line

    tell = progress.progress()
    values = api.parse_matrix(matrix, search=options["search"] is not None)
    named = {name.replace("_", "-"): value for name, value in options.items() if name != "overrides"}
    call = api.SweepCall(profile, values, options["overrides"], named)
    done = api.sweep(
        profile,
        matrix=values,
        approve=approval.ask(yes, call.words()),
        told=lambda now, point: (tell.say if point.succeeded else tell.notice)(point_line(now, point)),
        progress=tell,
        **options,
    )
    return done, call.command(detach=None) if done.going_on else None


def _exit_code(done: Sweep) -> int:
    """Return the exit code: of the first failed run, else of an exhausted budget if some runs were not
    started.
    """
    return next((point.error.exit_code for point in done.failed if point.error), EXIT_CAPACITY)
