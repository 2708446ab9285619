"""orch lint: find code that can fail or behave differently on another machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.options import Json
from orchestrator.cli.output import emit, guarded
from orchestrator.errors import EXIT_LINT


@guarded
def lint(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[PATH...]",
            help="Scripts, notebooks, requirements, folders; Markdown files by name. Default: this folder.",
        ),
    ] = None,
    profile: Annotated[
        Path | None,
        typer.Option("--profile", metavar="PROFILE", help="Check the code of this profile, for its machine."),
    ] = None,
    select: Annotated[
        list[str] | None,
        typer.Option(
            "--select",
            metavar="RULES",
            help="Only these rules, for example ORC401, ORC4 or unsorted-listing. Repeatable.",
        ),
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option("--ignore", metavar="RULES", help="Skip these rules. Repeatable.")
    ] = None,
    sarif: Annotated[
        Path | None, typer.Option("--sarif", metavar="FILE", help="Also write SARIF 2.1.0 to FILE.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Find code that can behave differently on another machine.

    Exit code 9 if there are errors or warnings; notes of level info alone give 0.
    """
    import json
    from dataclasses import asdict

    from orchestrator import __version__
    from orchestrator.api import lint as find
    from orchestrator.report.lint import lint_text
    from orchestrator.report.sarif import sarif as as_sarif

    found = find(paths or (), profile=profile, select=select or (), ignore=ignore or ())
    if sarif:
        sarif.write_text(json.dumps(as_sarif(found, __version__), indent=1) + "\n", encoding="utf-8")
    value = {
        "findings": [asdict(each) for each in found.findings],
        "files": found.files,
        "silenced": found.silenced,
        "clean": found.clean,
    }
    emit("lint", value, as_json, lint_text(found))
    if not found.clean:
        raise typer.Exit(EXIT_LINT)
