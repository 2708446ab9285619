"""Options and arguments that several verbs have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def duration(text: str) -> int:
    """Seconds of `300s` or `5m`, as profiles write durations."""
    from orchestrator.api import parse_duration

    try:
        return parse_duration(text, low=1, high=86400)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


Json = Annotated[bool, typer.Option("--json", help="One versioned JSON object on stdout.")]
Lease = Annotated[
    str | None,
    typer.Option("--lease", help="Which lease, by its name in `orch status`, if this folder has several."),
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a field of the profile; repeatable."),
]
Parallel = Annotated[
    bool, typer.Option("--parallel", help="Allow it beside another run on the machine, which shares it.")
]
NewData = Annotated[
    bool,
    typer.Option("--new-data", help="Train on a bucket's objects as they are now, though some changed."),
]
Strict = Annotated[bool, typer.Option("--strict", help="Stop where lint finds an error in the script.")]
ProfilePath = Annotated[Path, typer.Argument(metavar="PROFILE", help="A profile, like profiles/digits.yaml.")]
RunId = Annotated[str | None, typer.Argument(metavar="RUN", help="A run's id; default: the latest.")]
