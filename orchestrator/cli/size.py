"""orch size: measure what a training needs, before renting a machine."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.options import Json, Sets, chosen, duration
from orchestrator.cli.output import emit, guarded
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.api import Sized

Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="[PROFILE] [-- CMD...]", help="The profile, or the training command."),
]
Batch = Annotated[
    int | None,
    typer.Option("--batch", min=1, metavar="B", help="The batch size to size for. Default: the program's."),
]
Gpu = Annotated[
    bool | None,
    typer.Option("--gpu/--no-gpu", help="Size for a machine with a GPU. Default: as the profile says."),
]


@guarded
def size(
    words: Words = None,
    batch: Batch = None,
    tried: Annotated[str, typer.Option("--try", metavar="B,B,...", help="Batch sizes to measure.")] = "",
    gpu: Gpu = None,
    write: Annotated[bool, typer.Option("--write", help="Write the minimums into PROFILE.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before PROFILE is written.")] = False,
    budget: Annotated[
        int,
        typer.Option(
            "--budget", parser=duration, metavar="DURATION", help="Time limit of the trial batch sizes."
        ),
    ] = "120s",  # type: ignore[assignment]  # parsed as if given
    limit: Annotated[
        int,
        typer.Option("--limit", parser=duration, metavar="DURATION", help="Time limit of the whole command."),
    ] = "15m",  # type: ignore[assignment]
    sets: Sets = None,
    as_json: Json = False,
) -> None:
    """Measure the memory, cores and disk that a training needs, by a scratch run on this computer.

    Exit codes: 0 success, 1 not enough memory here, 2 nothing to measure or the profile cannot be written, 6
    the program failed before its first step, 130 interrupted.
    """
    from orchestrator import api
    from orchestrator.cli import progress
    from orchestrator.report.size import size_text

    profile, command = _parted(words or [])
    if write and profile is None:
        raise UsageError("--write needs a profile.", next_command="orch size orch.yaml --write")
    tries = _numbers(tried)
    with _scratch():
        sized = api.size(
            profile,
            command,
            batch=batch,
            sizes=tries,
            gpu=gpu,
            budget=budget,
            limit=limit,
            overrides=sets or (),
            progress=progress.progress(),
        )
    value = sized.as_json()
    if profile is not None and write:
        value["written"] = _write(profile, sized, yes)
    emit("size", value, as_json, size_text(value))


@contextmanager
def _scratch() -> Iterator[None]:
    """Say of an interrupt what became of the scratch run."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt("The scratch run was stopped and removed.") from None


def _parted(words: list[str]) -> tuple[Path | None, list[str]]:
    """Split the words into a profile's path, if the first word is one, and the command. Without words, the
    profile is the project's default one, if there is one.
    """
    if not words:
        with suppress(UsageError):
            return chosen(None), []
    if words and words[0].endswith((".yaml", ".yml")):
        return Path(words[0]), words[1:]
    return None, words


def _numbers(text: str) -> list[int]:

    try:
        found = [int(word) for word in text.split(",") if word.strip()]
    except ValueError:
        found = [0]
    if any(number < 1 for number in found):
        raise UsageError(f"--try takes batch sizes such as 16,32,64, not {text!r}.")
    return found


def _write(profile: Path, sized: Sized, yes: bool) -> bool:
    """Print the difference on stderr, ask, and write. Returns whether it was written."""
    from orchestrator import api
    from orchestrator.cli.terminal import ours

    before = profile.read_text("utf-8")
    after, difference = api.change_profile(profile, sized)
    if not difference:
        print(ours(f"{profile} already has these minimums."), file=sys.stderr)
        return False
    print(ours(difference), file=sys.stderr, end="")
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError(
                f"{profile} was not written: this needs your approval.",
                next_command=shlex.join(["orch", "size", str(profile), "--write", "--yes"]),
            )
        if not typer.confirm(f"Write {profile}?", err=True):
            return False
    api.write_minimums(profile, before, after)
    print(ours(f"Wrote {profile}"), file=sys.stderr)
    return True
