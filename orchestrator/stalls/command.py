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
    """Return the command `words` with the Python that it names, or that of `orch.yaml` with the Python of its
    lock.

    If the lock's environment or prepared data are missing, they are created. Raises UsageError if there is no
    command, and StackError if the environment cannot be created.
    """
    if words:
        return Command(tuple(words), Path.cwd(), command_python(words))
    own = Path("orch.yaml")
    if not own.exists():
        raise UsageError(
            "No command was given, and there is no orch.yaml here that names one.",
            next_command="orch profile -- python train.py",
        )
    wanted = load(own)
    python = local_stack(wanted, tell).python
    for each in wanted.data:
        if not each.bucket:  # a copy of the bucket would not be visible to the scratch run
            make(each, wanted, lambda: python, tell)
    return Command(wanted.train.command, wanted.code.path, str(python), wanted.train.environment())
