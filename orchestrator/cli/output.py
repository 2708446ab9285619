"""One versioned object on stdout with --json, text without; errors with their next command."""

from __future__ import annotations

import errno
import functools
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import typer

from orchestrator.cli.command_log import current
from orchestrator.cli.signals import stopped_as_interrupted
from orchestrator.cli.terminal import ours
from orchestrator.errors import (
    EXIT_INTERRUPTED,
    BeforeTheRun,
    DataNotSent,
    Interrupted,
    LocalError,
    NotAccepted,
    OrchError,
    ParityMismatch,
    ProviderError,
    ResumeRefused,
    UsageError,
)
from orchestrator.model.error_page import page_of


def emit(verb: str, value: Mapping[str, Any], as_json: bool, text: str) -> None:
    """Print the outcome of a verb: `{"schema": "orch.<verb>/1", ...}`, or `text`."""
    if as_json:
        print(json.dumps({"schema": f"orch.{verb}/1", **value}, indent=1, default=str))
    elif text:
        print(ours(text))


def guarded(function: Callable[..., None]) -> Callable[..., None]:
    """Decorate a verb so that its failures become a message and an exit code, never a traceback.

    A scheduler's SIGTERM and a closed terminal end it as Ctrl-C does.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> None:
        as_json = bool(kwargs.get("as_json"))
        try:
            with stopped_as_interrupted():
                function(*args, **kwargs)
        except OrchError as error:
            fail(error, as_json)
        except OSError as error:
            if isinstance(error, BrokenPipeError):
                sys.stderr.close()
                raise typer.Exit(0) from None
            fail(_of_this_computer(error), as_json)
        except KeyboardInterrupt as interrupt:
            _tell_interrupt(interrupt, as_json)
            raise typer.Exit(EXIT_INTERRUPTED) from None

    return call


def _of_this_computer(error: OSError) -> OrchError:
    """Translate an OSError of this computer: a full disk, a missing permission, a removed file."""
    from orchestrator.api import Project, refusal_of, shown_path

    if error.errno == errno.ENAMETOOLONG:
        name = shown_path(Path(str(error.filename or "")))
        return UsageError(f"A name is longer than this computer allows: {name}")
    refused, once = refusal_of(error, Project.at())
    again = f"repeat the command    # {once}" if error.errno == errno.ENOSPC else "orch status"
    return LocalError(f"Error on this computer: {refused}.", exists=_INTERRUPTED_EXISTS, next_command=again)


_INTERRUPTED_EXISTS = "Everything that was created before still exists."


def _tell_interrupt(interrupt: KeyboardInterrupt, as_json: bool) -> None:
    """Print what an interrupt left and the next command, and with --json also as one object."""
    happened, exists, following = _told(interrupt)
    print(ours("\n" + "\n".join(text for text in (happened, exists) if text)), file=sys.stderr)
    if following:
        print(ours(f"Next: {following}"), file=sys.stderr)
    if as_json:
        value = {
            "kind": "Interrupted",
            "code": "interrupted",
            "message": happened,
            "exists": exists or None,
            "next_command": following or None,
            "exit_code": EXIT_INTERRUPTED,
            "retry": False,
        }
        print(json.dumps({"schema": "orch.error/1", "error": value, "run": None}, indent=1))


def _told(interrupt: KeyboardInterrupt) -> tuple[str, str, str]:
    """Return what happened, what exists, and the next command."""
    if isinstance(interrupt, BeforeTheRun):
        again = (
            f"{interrupt}    # files that were sent are not sent again" if str(interrupt) else "orch status"
        )
        return "Interrupted before the run was started.", "The machine still exists.", again
    if isinstance(interrupt, Interrupted):
        return "Interrupted.", interrupt.exists, interrupt.next_command
    return "Interrupted.", str(interrupt) or _INTERRUPTED_EXISTS, "" if str(interrupt) else "orch status"


def fail(error: OrchError, as_json: bool) -> None:
    """Print a failure, then exit with its code."""
    raise typer.Exit(tell(error, as_json))


def _letter(error: OrchError) -> str:
    """The full report of a parity mismatch; "" for every other failure."""
    record = getattr(error, "record", None)
    if not isinstance(error, ParityMismatch) or isinstance(error, DataNotSent) or record is None:
        return ""
    if isinstance(error, ResumeRefused):
        from orchestrator.model.resume import ResumeCheck
        from orchestrator.report import resume

        return resume.letter(ResumeCheck.from_json(record.resume_proof)) + "\n"
    from orchestrator.report.parity import letter

    return letter(record.parity) + "\n"


def _show_run(error: NotAccepted) -> None:
    """Print the run's summary. The run succeeded, but its model was not accepted."""
    from orchestrator.model import RunRecord
    from orchestrator.report.run import summary

    if isinstance(error.record, RunRecord):
        print(f"\n{ours(summary(error.record))}", flush=True)


def _kept(error: OrchError) -> Path | None:
    """Return this command's log file, with the error in it; None if the command failed before it did
    anything.
    """
    log = current()
    if log is None or log.path is None:
        return None
    log.failure(error)
    return log.path


def tell(error: OrchError, as_json: bool) -> int:
    """Print what happened, what still exists and the next command. Returns the exit code."""
    if as_json:
        value = {
            "kind": error.kind,
            "code": page_of(error),
            "message": error.message,
            "exists": error.exists,
            "next_command": error.next_command,
            "exit_code": error.exit_code,
            "retry": error.worth_repeating,
        }
        record = getattr(error, "record", None)
        if path := _kept(error):
            value["log"] = str(path)
        run = record.as_json() if record is not None else None
        tried = {"attempts": list(error.attempts)} if isinstance(error, ProviderError) else {}
        print(json.dumps({"schema": "orch.error/1", "error": value, **tried, "run": run}, indent=1))
    else:
        if isinstance(error, NotAccepted):
            _show_run(error)
        print(ours(_letter(error) or f"orch: {error.message}"), file=sys.stderr)
        steps = f"Next: {error.next_command}" if error.next_command else None
        log = _kept(error)
        more = f"More: orch explain {page_of(error)}" + (f"    # log: {log}" if log else "")
        for text in (error.exists, steps, more):
            if text:
                print(ours(text), file=sys.stderr)
    return error.exit_code
