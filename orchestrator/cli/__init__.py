"""The command line: parse, call a verb, render its result, and leave with the right exit code."""

from __future__ import annotations

import sys
from typing import Any


def main() -> None:
    import typer

    from orchestrator.cli.app import app
    from orchestrator.errors import EXIT_INTERRUPTED

    as_json = "--json" in sys.argv
    try:
        code = app(standalone_mode=False)
    except typer.Abort as abort:
        # typer also raises Abort for an uncaught EOFError, which is not an interrupt
        fault = abort.__cause__
        code = _own_fault(fault, as_json) if isinstance(fault, EOFError) else EXIT_INTERRUPTED
    except Exception as error:
        unparsable = hasattr(error, "format_message")  # typer's errors in the command line
        code = _refuse(error, as_json) if unparsable else _own_fault(error, as_json)
    sys.exit(code)


def _refuse(error: Any, as_json: bool) -> int:
    """Report an unknown or missing verb, option or argument: exit code 2."""
    if not as_json:
        error.show()
        return int(error.exit_code)
    from orchestrator.cli.output import tell
    from orchestrator.errors import UsageError

    context = getattr(error, "ctx", None)
    verb = context.command_path if context else "orch"
    return tell(UsageError(error.format_message(), next_command=f"{verb} --help"), as_json)


def _own_fault(error: Exception, as_json: bool) -> int:
    """Report a bug of orch; its traceback is written to a file that the user can send."""
    import tempfile
    import traceback

    from orchestrator.cli.output import tell
    from orchestrator.errors import LocalError

    with tempfile.NamedTemporaryFile("w", prefix="orch-fault-", suffix=".txt", delete=False) as file:
        traceback.print_exception(error, file=file)
    text = f"This is a bug in orch: {type(error).__name__}: {error}. The traceback is in {file.name}"
    exists = "Everything that was created before still exists."
    return tell(
        LocalError(text, exists=exists, next_command="orch status    # then report the bug with that file"),
        as_json,
    )
