"""orch init and orch lock: prepare a project: its first profile, data to declare, and its packages."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.options import Json
from orchestrator.cli.output import emit, guarded


@guarded
def init(
    project: Annotated[Path, typer.Argument(metavar="[PROJECT]", help="The project's folder.")] = Path(),
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The profile to write.")
    ] = Path("orch.yaml"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing profile.")] = False,
    terraform: Annotated[
        Path | None,
        typer.Option(
            "--terraform", metavar="DIR", help="Use the outputs of the terraform run in this folder."
        ),
    ] = None,
    add_data: Annotated[
        list[Path] | None,
        typer.Option("--add-data", metavar="PATH", help="Declare this path as data. Repeatable."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write orch.yaml for a project, or add data to an existing profile."""
    from orchestrator.api import hint
    from orchestrator.api.first_steps import first_steps
    from orchestrator.api.schemas import missing_lock, refused_lock, start_profile
    from orchestrator.api.terraform import terraform_outputs
    from orchestrator.cli import progress

    path = output if output.is_absolute() else project / output
    if add_data and path.exists() and not force:
        _add(path, add_data, as_json)
        return
    ready = terraform_outputs(terraform) if terraform else None
    path, text = start_profile(project, output, force, ready)
    text = _added(path, add_data) if add_data else text
    hint(path, progress.progress())
    steps = first_steps(path)
    refused = refused_lock(path)
    exports = [f"In your shell: {line}" for line in ready.exports] if ready else []
    value = {
        "path": str(path),
        "profile": text,
        "missing": missing_lock(path),
        "environment": dict(ready.environment) if ready else {},
        "command_found": steps.is_command_found,
        "lacking": list(steps.lacking),
    }
    commands = [*steps.commands, *([str(refused.next_command)] if refused else [])]
    following = ", then: ".join((*commands, f"orch up {shlex.quote(str(path))}"))
    found = [*_empty_among(add_data or []), *steps.found, *([refused.message] if refused else [])]
    emit("init", value, as_json, "\n".join([f"Wrote {path}", *exports, *found, f"Next: {following}"]))


@guarded
def lock(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="[REQUIREMENTS]",
            help="A file that names the packages, or the folder of requirements.in, requirements.txt, "
            "pyproject.toml, setup.py, Pipfile or environment.yml.",
        ),
    ] = Path(),
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="The lock file to write. Default: requirements.lock beside SOURCE.",
        ),
    ] = None,
    upgrade: Annotated[
        bool, typer.Option("--upgrade", help="Upgrade packages beyond the versions in an existing lock.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Pin the packages that a project needs to exact versions, with the hash of each file."""
    from orchestrator.api import locking
    from orchestrator.cli import progress
    from orchestrator.model.counted import counted

    made = locking.lock(source, output, progress.progress(), upgrade=upgrade)
    text = f"Wrote {made.path}: {counted(made.packages, 'package')} for Python {made.python}"
    text = "\n".join([text, *made.notes])
    emit("lock", made.as_json(), as_json, text)


def _added(profile: Path, paths: list[Path]) -> str:
    from orchestrator.api.declaring import add_data

    return add_data(profile, paths)


def _add(profile: Path, paths: list[Path], as_json: bool) -> None:
    from orchestrator.api.schemas import missing_lock

    text = _added(profile, paths)
    names = ", ".join(map(str, paths))
    value: dict[str, object] = {
        "path": str(profile),
        "profile": text,
        "missing": missing_lock(profile),
        "environment": {},
    }
    said = [f"{profile} declares {names} as data.", *_empty_among(paths)]
    emit("init", value, as_json, "\n".join(said))


def _empty_among(paths: list[Path]) -> list[str]:
    from orchestrator.api.declaring import has_files

    return [
        f"{path} contains 0 files: nothing is sent until it has some."
        for path in paths
        if not has_files(path)
    ]
