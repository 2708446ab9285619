"""Door 2: parse, call the api, render, and leave with the right exit code."""

from __future__ import annotations

import sys
from typing import Any


def main() -> None:
    import typer

    from orchestrator.cli.app import app
    from orchestrator.errors import EXIT_INTERRUPTED

    try:
        code = app(standalone_mode=False)
    except typer.Abort:
        code = EXIT_INTERRUPTED
    except Exception as error:
        if not hasattr(error, "format_message"):  # what a command line raises that cannot be parsed
            raise
        code = _refuse(error, as_json="--json" in sys.argv)
    sys.exit(code)


def _refuse(error: Any, as_json: bool) -> int:
    """A verb, option or argument that does not exist or is missing: exit code 2."""
    if not as_json:
        error.show()
        return int(error.exit_code)
    from orchestrator.cli.output import tell
    from orchestrator.errors import UsageError

    context = getattr(error, "ctx", None)
    verb = context.command_path if context else "orch"
    return tell(UsageError(error.format_message(), next_command=f"{verb} --help"), as_json)
