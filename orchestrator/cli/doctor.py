"""orch doctor: check this computer, or a cloud account."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.options import Json, Sets
from orchestrator.cli.output import emit, guarded
from orchestrator.model import clouds

Cloud = Annotated[
    str | None,
    typer.Argument(metavar=f"[{'|'.join(clouds.elsewhere())}]", help="A cloud. Default: this computer."),
]
Wanted = Annotated[
    Path | None,
    typer.Argument(metavar="[PROFILE]", help="Also check image and quota for the machine of this profile."),
]
Region = Annotated[
    str | None,
    typer.Option("--region", metavar="REGION", help="The region to check, instead of the profile's."),
]


@guarded
def doctor(
    cloud: Cloud = None,
    profile: Wanted = None,
    region: Region = None,
    sets: Sets = None,
    as_json: Json = False,
) -> None:
    """Check whether this computer, or a cloud account, is ready.

    For a cloud it checks credentials, every permission, region, network, image and quota, and creates
    nothing. Exit codes: 0 ready, 3 credentials or permissions missing, 4 not enough quota, 5 anything else
    missing.
    """
    code = _here(as_json) if cloud is None else _there(cloud, profile, region, sets or [], as_json)
    if code:
        raise typer.Exit(code)


def _here(as_json: bool) -> int:
    from orchestrator.api import doctor as doctor_
    from orchestrator.report.doctor import doctor_text

    found = doctor_.examine()
    emit("doctor", found, as_json, doctor_text(found))
    return 0 if found["ready"] else 5


def _there(cloud: str, profile: Path | None, region: str | None, sets: list[str], as_json: bool) -> int:
    from orchestrator.api import cloud_doctor
    from orchestrator.cli import progress
    from orchestrator.report.doctor import readiness_text

    progress.progress().say(f"Checking {cloud}; nothing is created.")
    found = cloud_doctor.examine(cloud, profile, region=region, overrides=sets)
    emit("cloud-doctor", cloud_doctor.as_json(found), as_json, readiness_text(found, profile))
    return cloud_doctor.exit_code(found)
