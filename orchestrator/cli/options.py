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


def run_ids(incomplete: str) -> list[str]:
    """Complete the id of a run."""
    from orchestrator.api.completing import run_ids as known

    return known(incomplete)


def lease_ids(incomplete: str) -> list[str]:
    """Complete the id of a lease."""
    from orchestrator.api.completing import lease_ids as known

    return known(incomplete)


def chosen(profile: Path | None) -> Path:
    """Return the given profile, or the project's default one."""
    if profile is not None:
        return profile
    from orchestrator.api import Project

    return Project.at().default_profile()


Json = Annotated[bool, typer.Option("--json", help="Print one versioned JSON object on stdout.")]
Lease = Annotated[
    str | None,
    typer.Option(
        "--lease",
        metavar="NAME",
        help="The lease, as `orch status` shows it, if the project has several.",
        autocompletion=lease_ids,
    ),
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a field of the profile. Repeatable."),
]
LocalParity = Annotated[
    bool,
    typer.Option("--local-parity", help="First check that the first steps are identical here and there."),
]
ResumeProof = Annotated[
    bool,
    typer.Option("--resume-proof", help="First check here that an interrupted run resumes exactly."),
]
Parallel = Annotated[
    bool, typer.Option("--parallel", help="Start even if another run is active on the machine.")
]
NewData = Annotated[
    bool,
    typer.Option("--new-data", help="Accept objects of a bucket that changed since the last run."),
]
Strict = Annotated[bool, typer.Option("--strict", help="Stop if lint finds an error in the script.")]
ProfilePath = Annotated[
    Path | None,
    typer.Argument(metavar="[PROFILE]", help="The profile. Default: orch.yaml of this project."),
]
RunId = Annotated[
    str | None,
    typer.Argument(metavar="RUN", help="The run's id. Default: the latest run.", autocompletion=run_ids),
]
