"""orch doctor: what this computer can do for orch; with a cloud, what that cloud would let you do."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.options import Json, Sets
from orchestrator.cli.output import emit, guarded
from orchestrator.model import clouds

Cloud = Annotated[
    str | None,
    typer.Argument(metavar=f"[{'|'.join(clouds.elsewhere())}]", help="A cloud; default: this computer."),
]
Wanted = Annotated[
    Path | None, typer.Argument(metavar="[PROFILE]", help="Check image and quota for its machine.")
]
Region = Annotated[str | None, typer.Option("--region", help="Look there instead of the profile's region.")]


@guarded
def doctor(
    cloud: Cloud = None,
    profile: Wanted = None,
    region: Region = None,
    sets: Sets = None,
    as_json: Json = False,
) -> None:
    """What this computer can do for orch; or whether a cloud would make your machine, and what lacks.

    Of a cloud: credentials, every permission, region, network, image, quota. It makes nothing there.
    Exit codes: 0 ready, 3 credentials or permissions missing, 4 quota short, 5 anything else missing.
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

    progress.progress().say(f"Asking {cloud}; nothing is made there.")
    found = cloud_doctor.examine(cloud, profile, region=region, overrides=sets)
    emit("cloud-doctor", cloud_doctor.as_json(found), as_json, readiness_text(found, profile))
    return cloud_doctor.exit_code(found)
