"""Helpers of train, run, watch, logs and pull: write a job's output, and show a run."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

from orchestrator.cli.output import emit
from orchestrator.cli.terminal import Shown, ours
from orchestrator.errors import BeforeTheRun, Interrupted
from orchestrator.model import PullReport, RunRecord
from orchestrator.model.outcomes import ExitReason, failure_of
from orchestrator.report.run import pulled_text, summary


def output(as_json: bool) -> Callable[[bytes], None]:
    """Return a writer for the job's output: to stdout, or with --json to stderr.

    A terminal receives text and colours only; a file or pipe receives every byte.
    """
    text = sys.stderr if as_json else sys.stdout
    stream, shown = text.buffer, Shown() if text.isatty() else None

    def write(data: bytes) -> None:
        stream.write(shown.piece(data) if shown else data)
        stream.flush()

    return write


def show(record: RunRecord, as_json: bool, **told: object) -> None:
    """Print a run: its summary, or with --json its record with the fields of `told` added."""
    if as_json:
        print(json.dumps({**record.as_json(), **told}, indent=1))
    elif record.exit["reason"] == ExitReason.RUNNING:
        print(ours(f"{record.run_id} is running.\nNext: orch logs -f {record.run_id}"))
    else:
        print(f"\n{ours(summary(record))}")


def leave(record: RunRecord) -> None:
    """Exit with the code of a failed run; return if it succeeded."""
    if not record.succeeded:
        raise typer.Exit(failure_of(record.exit["reason"]).exit_code)


def show_pulled(pulled: PullReport, as_json: bool) -> None:
    """Print every run that was pulled; with --json, one object that contains them all."""
    if as_json:
        value = {"runs": [record.as_json() for record in pulled.records], "running": list(pulled.running)}
        emit("pull", value, True, "")
        return
    for record in pulled.records:
        show(record, False)
    if text := pulled_text(pulled):
        print(ours(text))


@contextmanager
def detachable() -> Iterator[None]:
    """Say of an interrupt that nobody else handled that the run, which is only followed, goes on."""
    try:
        yield
    except (BeforeTheRun, Interrupted):
        raise
    except KeyboardInterrupt:
        follow = "orch logs -f    # follow its output again; or: orch cancel"
        raise Interrupted("The run continues on its machine.", follow) from None
