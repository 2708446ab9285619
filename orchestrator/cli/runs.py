"""What train, attach, logs and pull share: where output goes, and how a run is shown."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

from orchestrator.cli.output import emit
from orchestrator.cli.terminal import Shown, ours
from orchestrator.errors import EXIT_INTERRUPTED, BeforeTheRun, failure_of
from orchestrator.model import PullReport, RunRecord
from orchestrator.model.outcomes import ExitReason
from orchestrator.report.run import pulled_text, summary


def output(as_json: bool) -> Callable[[bytes], None]:
    """The job's own output goes to stdout; with --json to stderr. A terminal gets its text and colours only,
    a file or a pipe every byte."""
    text = sys.stderr if as_json else sys.stdout
    stream, shown = text.buffer, Shown() if text.isatty() else None

    def write(data: bytes) -> None:
        stream.write(shown.piece(data) if shown else data)
        stream.flush()

    return write


def show(record: RunRecord, as_json: bool, **told: object) -> None:
    """The run's published object, with what was `told` of this call; or its screen."""
    if as_json:
        print(json.dumps({**record.as_json(), **told}, indent=1))
    elif record.exit["reason"] == ExitReason.RUNNING:
        print(ours(f"{record.run_id} is running.\nNext: orch logs -f {record.run_id}"))
    else:
        print(f"\n{ours(summary(record))}")


def leave(record: RunRecord) -> None:
    """The exit code of a run that is shown as it ended."""
    if not record.succeeded:
        raise typer.Exit(failure_of(record.exit["reason"]).exit_code)


def show_pulled(pulled: PullReport, as_json: bool) -> None:
    """Every run that was fetched; with --json one object with all of them."""
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
    """Ctrl-C lets go of the run; the run itself goes on."""
    try:
        yield
    except BeforeTheRun:
        print(
            "\nInterrupted before the run was started; the machine is still there.\n"
            "Next: orch train    # begins again, quickly",
            file=sys.stderr,
        )
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except KeyboardInterrupt:
        print(
            "\nDetached; the run goes on on its machine.\n"
            "Next: orch logs -f    # goes on from the byte you saw last; or: orch cancel",
            file=sys.stderr,
        )
        raise typer.Exit(EXIT_INTERRUPTED) from None
