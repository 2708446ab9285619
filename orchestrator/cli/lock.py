"""orch lock: pin the packages of a project."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.options import Json
from orchestrator.cli.output import emit, guarded
from orchestrator.model.counted import counted


@guarded
def lock(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="[REQUIREMENTS]",
            help="A file that names the packages, or the folder of requirements.in, requirements.txt or "
            "pyproject.toml.",
        ),
    ] = Path(),
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="The lock. Default: requirements.lock beside it."
        ),
    ] = None,
    upgrade: Annotated[
        bool, typer.Option("--upgrade", help="Take newer versions than an existing lock has.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Pin the packages that a project needs to exact versions, with the hash of each file."""
    from orchestrator.api import locking
    from orchestrator.cli import progress

    made = locking.lock(source, output, progress.progress(), upgrade=upgrade)
    text = f"Wrote {made.path}: {counted(made.packages, 'package')} for Python {made.python}"
    emit("lock", made.as_json(), as_json, text)
