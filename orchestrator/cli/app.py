"""The verbs: parse, call the api, render. A verb imports what it needs when it is called."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from orchestrator.cli import cancel as cancel_
from orchestrator.cli import catalog, costs, doctor, gc, image
from orchestrator.cli import compare as compare_
from orchestrator.cli import down as down_
from orchestrator.cli import explain as explain_
from orchestrator.cli import history as history_
from orchestrator.cli import init as init_
from orchestrator.cli import lint as lint_
from orchestrator.cli import models as models_
from orchestrator.cli import profile as profile_
from orchestrator.cli import pull as pull_
from orchestrator.cli import report as report_
from orchestrator.cli import rerun as rerun_
from orchestrator.cli import resume_check as resume_check_
from orchestrator.cli import run as run_
from orchestrator.cli import setup as setup_
from orchestrator.cli import size as size_
from orchestrator.cli import ssh as ssh_
from orchestrator.cli import sweep as sweep_
from orchestrator.cli import tensorboard as tensorboard_
from orchestrator.cli import top as top_
from orchestrator.cli import watch as watch_
from orchestrator.cli.groups import App
from orchestrator.cli.options import (
    Json,
    Lease,
    LocalParity,
    NewData,
    Parallel,
    ProfilePath,
    ResumeProof,
    RunId,
    Sets,
    Strict,
    chosen,
    run_ids,
)
from orchestrator.cli.output import emit, guarded
from orchestrator.cli.verbs import Command, Verb

app = App(
    name="orch",
    help="Train on another machine and verify that the result is the same as on yours.",
    add_completion=True,
    pretty_exceptions_enable=False,
    epilog="Exit codes: 0 success, 1 error on this computer, 2 usage or profile, 3 credentials, "
    "4 capacity or quota, 5 provisioning, 6 training failed, 7 parity or stack mismatch, "
    "8 connection lost or clean-up not confirmed, 9 lint findings, 10 out of memory, 11 preempted, "
    "12 machine lost, 13 cancelled, 14 results lost, 15 busy, 16 stalled, 17 loss not finite, "
    "18 disk full, 19 deadline reached, 20 model not accepted, 130 interrupted.",
)

app.add_typer(catalog.app)
app.add_typer(image.app)


@app.command(cls=Verb)
@guarded
def up(
    profile: ProfilePath = None,
    sets: Sets = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask for confirmation before spending money.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and change nothing.")] = False,
    strict: Strict = False,
    keep: Annotated[
        bool,
        typer.Option(
            "--keep", help="Keep a new machine even if its setup fails; it costs money until `orch down`."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Create the machine of PROFILE and install its packages.

    Safe to repeat: a machine that already exists is reused.
    """
    from orchestrator import api
    from orchestrator.cli import approval, progress

    profile = chosen(profile)
    if dry_run:
        planned = api.plan(profile, overrides=sets or ()).as_json()
        from orchestrator.report.lease import plan_text

        emit("plan", planned, as_json, plan_text(planned))
        return
    tell = progress.progress()
    changed = [word for each in sets or () for word in ("--set", each)]
    held = api.up(
        profile,
        overrides=sets or (),
        approve=approval.ask(yes, ["orch", "up", str(profile), *changed]),
        strict=strict,
        progress=tell,
        keep=keep,
    )
    from orchestrator.api import next_after_up
    from orchestrator.report.lease import status_text

    text = f"{status_text([held])}\nNext: {next_after_up(profile, sets or ())}"
    emit("up", held.as_json(), as_json, text)


@app.command(cls=Verb)
@guarded
def plan(
    profile: ProfilePath = None,
    sets: Sets = None,
    like: Annotated[
        str | None,
        typer.Option(
            "--like", metavar="RUN", help="Plan a machine that fits what RUN used.", autocompletion=run_ids
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what `orch up` would do and cost, without doing it."""
    from orchestrator import api
    from orchestrator.report.lease import plan_text
    from orchestrator.report.where import like_text

    profile = chosen(profile)
    learned: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    if like is not None:
        from orchestrator.api import similar_types as like_run

        learned, reasons = like_run(like)
    planned = api.plan(profile, overrides=(*learned, *(sets or ()))).as_json()
    said = {"like": {"run": like, "overrides": learned, "reasons": reasons}} if like is not None else {}
    text = plan_text(planned) + like_text(profile, like, learned, reasons)
    emit("plan", {**planned, **said}, as_json, text)


@app.command(cls=Verb)
@guarded
def train(
    local_parity: LocalParity = False,
    resume_proof: ResumeProof = False,
    run_id: Annotated[
        str | None,
        typer.Option("--run-id", metavar="ID", help="Name the run. A second call attaches to it."),
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Return once the run has started.")] = False,
    io_analyze: Annotated[
        bool,
        typer.Option(
            "--io-analyze", help="Afterwards, measure the input on the machine, as `orch profile` does."
        ),
    ] = False,
    retry_failed: Annotated[
        bool,
        typer.Option(
            "--retry-failed",
            help="If the run id has failed before, make a new attempt with the current files.",
        ),
    ] = False,
    parallel: Parallel = False,
    new_data: NewData = False,
    lease: Lease = None,
    sets: Sets = None,
    strict: Strict = False,
    as_json: Json = False,
) -> None:
    """Train on the leased machine and download the results."""
    from orchestrator import api
    from orchestrator.cli import runs
    from orchestrator.cli.approval import ask_if_more_expensive
    from orchestrator.cli.live import following

    profile_.refuse_detached(io_analyze, detach)
    with following(as_json) as (output, progress):
        record = api.train(
            run_id=run_id,
            lease=lease,
            local_parity=local_parity,
            resume_proof=resume_proof,
            detach=detach,
            retry_failed=retry_failed,
            parallel=parallel,
            new_data=new_data,
            overrides=sets or (),
            strict=strict,
            output=output,
            approve=ask_if_more_expensive(),
            progress=progress,
        )
    runs.show(record, as_json, started=record.started)
    if io_analyze:
        profile_.analyse(record.run_id, lease, sets or (), as_json)


@app.command(cls=Command, context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True})
@guarded
def record(
    command: Annotated[list[str], typer.Argument(metavar="-- CMD...", help="The training command.")],
    steps: Annotated[int, typer.Option("--steps", min=0, metavar="N", help="Steps to record in full.")] = 3,
    light: Annotated[
        int,
        typer.Option("--light", min=0, metavar="N", help="Further steps to record as fingerprints only."),
    ] = 0,
    run_id: Annotated[str | None, typer.Option("--run-id", metavar="ID", help="Name the run.")] = None,
    as_json: Json = False,
) -> None:
    """Run a training on this computer and record its first steps.

    CMD runs in the environment of its own python; no machine is involved.
    """
    from orchestrator import api
    from orchestrator.cli import progress, runs

    piped = sys.stdin is not None and not sys.stdin.closed and not sys.stdin.isatty()
    done = api.record(
        command,
        steps=steps,
        light=light,
        run_id=run_id,
        output=runs.output(as_json),
        progress=progress.progress(),
        stdin=sys.stdin.buffer if piped else None,
    )
    runs.show(done, as_json)
    runs.leave(done)


app.command(cls=Verb)(run_.run)
app.command(cls=Verb)(setup_.setup)
app.command(cls=Verb)(compare_.compare)
app.command(cls=Verb)(rerun_.rerun)
app.command(cls=Verb)(sweep_.sweep)
app.command(
    name="resume-check",
    cls=Command,
    context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True},
)(resume_check_.resume_check)
app.command(cls=Verb)(lint_.lint)
app.command(cls=Verb)(size_.size)
app.command(cls=Command, context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True})(
    profile_.profile
)


@app.command(cls=Verb)
@guarded
def status(
    ask: Annotated[bool, typer.Option("--live", help="Ask the clouds as well as the local ledger.")] = False,
    team: Annotated[
        bool, typer.Option("--team", help="List all leases of the team's ledger, including closed ones.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show the project's machines, their deadlines and costs."""
    from orchestrator.api import Project, leases_elsewhere
    from orchestrator.api import status as leases
    from orchestrator.errors import EXIT_RESULTS_LOST
    from orchestrator.report.lease import nothing_leased, status_text

    held = leases(ask=ask, team=team)
    others = () if held or team else leases_elsewhere()
    text = status_text(held) if held else nothing_leased(others, Project.at().up_command)
    if team:
        from orchestrator.report.team import team_text

        text = team_text(held, Project.at().up_command)
    value = {"leases": [each.as_json() for each in held], "elsewhere": list(others)}
    emit("status", value, as_json, text)
    if any(run["lost"] for each in held for run in each.runs):
        raise typer.Exit(EXIT_RESULTS_LOST)


@app.command(cls=Verb)
@guarded
def logs(
    run_id: RunId = None,
    follow: Annotated[
        bool,
        typer.Option("-f", "--follow", help="Follow the output, from where you last stopped."),
    ] = False,
    lease: Lease = None,
    as_json: Json = False,
) -> None:
    """Print the output of a run, or follow it with -f.

    Ctrl-C stops following; the run continues on its machine.
    """
    from orchestrator.api import logs as logs_
    from orchestrator.cli import runs, terminal
    from orchestrator.cli.live import following

    with runs.detachable(), following(as_json, live=follow) as (output, progress):
        ended = logs_.logs(run_id, follow=follow, lease=lease, output=output, progress=progress)
    emit("logs", ended, as_json, "")
    if follow and not as_json and ended["ended"]:
        brings = f"\nNext: {ended['next_command']}" if ended["next_command"] else ""
        said = f"{ended['run_id']} ended: {ended['reason'] or 'see its record'}{brings}"
        print(terminal.ours(said), file=sys.stderr)


app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})(ssh_.ssh)
app.command(cls=Verb)(ssh_.forward)
app.command("ssh-config", cls=Verb)(ssh_.ssh_config)
app.command(cls=Verb)(tensorboard_.tensorboard)
app.command(cls=Verb)(explain_.explain)
app.command(cls=Verb)(top_.top)
app.command(cls=Verb)(pull_.pull)
app.command(cls=Verb)(watch_.watch)
app.command(cls=Verb)(cancel_.cancel)
app.command(cls=Verb)(down_.down)
app.command(cls=Verb)(history_.runs)
app.command(cls=Verb)(models_.models)
app.command(cls=Verb)(models_.rollback)
app.command(cls=Verb)(report_.report)
app.command(cls=Verb)(costs.costs)
app.command(cls=Verb)(gc.gc)


app.command(cls=Verb)(doctor.doctor)


@app.command(cls=Verb)
@guarded
def schema(
    which: Annotated[
        str, typer.Argument(metavar="[profile|run|lint]", help="Which schema to print.")
    ] = "profile",
    as_json: Annotated[bool, typer.Option("--json", help="No effect: a schema is always JSON.")] = False,
) -> None:
    """Print the JSON Schema of profiles, run.json or lint output."""
    import json

    from orchestrator.api.schemas import schema as find

    del as_json
    print(json.dumps(find(which), indent=1))


app.command(cls=Verb)(init_.init)
app.command(cls=Verb)(init_.lock)


@app.command(cls=Verb)
@guarded
def skipped(profile: ProfilePath = None, sets: Sets = None, as_json: Json = False) -> None:
    """List the files of the code that are not sent to the machine, and why.

    One line for each file or folder, with the rule that leaves it out: a line of .gitignore or .orchignore,
    `code.ignore` in the profile, or what is never sent. To send a file that git ignores, add `!NAME` to
    .orchignore. Data that the profile names are sent separately.
    """
    from orchestrator.api.recording import left_behind

    rows = left_behind(chosen(profile), sets or ())
    text = "\n".join(f"{path}  {why}" for path, why in rows) or "All files are sent."
    emit("skipped", {"skipped": [{"path": path, "why": why} for path, why in rows]}, as_json, text)


def _version(wanted: bool) -> None:
    if wanted:
        from orchestrator import __version__

        print(f"orch {__version__}")
        sys.exit(0)


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    del version
