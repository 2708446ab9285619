"""The command whose input is measured, with the environment and the folder in which it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.errors import UsageError
from orchestrator.model import Progress
from orchestrator.profile import load
from orchestrator.replay.command_line import command_python
from orchestrator.session.session import local_stack
from orchestrator.session.trees import make


@dataclass(frozen=True)
class Command:
    """`python`: the interpreter of `argv`; `env`: variables that it gets beside those of this shell."""

    argv: tuple[str, ...]
    folder: Path
    python: str
    env: Mapping[str, str] = field(default_factory=dict)


def command_of(words: Sequence[str], tell: Progress) -> Command:
    """Return the command `words` with the Python that it names, or that of `orch.yaml` with its lock's.

    The environment of the lock is made, and data that the profile prepares, where they are missing. Raises
    UsageError if there is neither, and StackError if the environment cannot be made.
    """
    if words:
        return Command(tuple(words), Path.cwd(), command_python(words))
    own = Path("orch.yaml")
    if not own.exists():
        raise UsageError(
            "There is no command, and no orch.yaml here that says one.",
            next_command="orch profile -- python train.py",
        )
    wanted = load(own)
    python = local_stack(wanted, tell).python
    for each in wanted.data:
        if not each.bucket:  # the scratch run would not see a copy of it
            make(each, wanted, lambda: python, tell)
    return Command(wanted.train.command, wanted.code.path, str(python), wanted.train.environment())
