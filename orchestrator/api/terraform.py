"""Read terraform outputs from a local state, a file, or the terraform program."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

from orchestrator.errors import UsageError
from orchestrator.profile.terraform import TerraformOutputs, read_ground

_PROGRAMS = ("terraform", "tofu")
_OUTPUT_S = 120.0


def terraform_outputs(path: Path) -> TerraformOutputs:
    """Read the outputs of the terraform folder or file at `path`.

    A file is a state, or the output of `terraform output -json`. For a folder whose state is stored
    elsewhere, terraform or tofu is run to ask for it. Raises UsageError.
    """
    if path.is_file():
        return read_ground(_text(path), str(path))
    if not path.is_dir():
        raise UsageError(f"{path} is neither a folder nor a file.")
    # the folder names a backend: its state is elsewhere
    if (path / ".terraform" / "terraform.tfstate").is_file():
        return read_ground(_asked(path), f"terraform output in {path}")
    state = _state(path)
    if state.is_file():
        return read_ground(_text(state), str(state))
    chdir = shlex.quote(f"-chdir={path}")
    raise UsageError(
        f"Nothing was applied in {path}: there is no {state.relative_to(path)}.",
        next_command=f"terraform {chdir} init && terraform {chdir} apply",
    )


def _state(folder: Path) -> Path:
    """The state of the selected workspace."""
    chosen = folder / ".terraform" / "environment"
    workspace = _text(chosen).strip() if chosen.is_file() else "default"
    name = "terraform.tfstate"
    return folder / name if workspace == "default" else folder / f"{name}.d" / workspace / name


def _asked(folder: Path) -> str:
    command = [_program(folder), f"-chdir={folder}", "output", "-json", "-no-color"]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=_OUTPUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"{' '.join(command)} could not be run: {error}.") from error
    if asked.returncode != 0:
        raise UsageError(
            f"{' '.join(command)} failed: {asked.stderr.strip() or asked.stdout.strip()}",
            next_command=shlex.join([*command[:2], "init"]),
        )
    return asked.stdout


def _program(folder: Path) -> str:
    """The program that was used in the folder, if that is known; else the installed one."""
    lock = folder / ".terraform.lock.hcl"
    wanted = _PROGRAMS[::-1] if lock.is_file() and "registry.opentofu.org" in _text(lock) else _PROGRAMS
    found = next((name for name in wanted if shutil.which(name)), None)
    if found is None:
        raise UsageError(
            f"The state of {folder} is kept elsewhere, and neither terraform nor tofu is installed here.",
            next_command="terraform output -json >outputs.json    # where it is; then: "
            "orch init --terraform outputs.json",
        )
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} cannot be read as text: {error.reason}.") from error
