"""Interventions on a repeated run, the candidates for a cause, and the side to reproduce."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.model import Subject
from orchestrator.model.outcomes import Kind
from orchestrator.parity.changes import Facts
from orchestrator.parity.places import named_by_variables

SHARED = frozenset(map(Path, ("/", "/tmp", "/var/tmp", "/dev/shm", "/home", "/usr", "/opt")))
"""Folders that many programs share, so that their content does not belong to a project's surroundings."""


@dataclass(frozen=True)
class Intervention:
    """Changes to the inputs of one repeated run. Two can be joined by `|`; the right one wins.

    `env`: variables to set, None to unset. `plan`: see runtime.replay.interventions. `files`: path at which
    the run looks for a file (relative to its folders, or absolute) -> file with the bytes to put there, None
    to remove it; for a folder, an empty one is put there. `times`: path -> modification time (Unix seconds).
    `arguments` and `python` replace the run's own. `path`: where the working folder appears to be; its
    content stays. `start`: the folder from which the program is started, relative to its own ("..": the one
    above). `command`: the complete command line, if it is not simply Python's. `program`: name of another
    program in the same folder to run. `stdin`: file for standard input. `around`: show at `path` also the
    files around that folder, instead of those around the run's own. `also`: folders of the other side at
    which the run's own copy appears too, if mounts are possible.
    """

    env: Mapping[str, str | None] = field(default_factory=dict)
    plan: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, Path | None] = field(default_factory=dict)
    times: Mapping[str, float] = field(default_factory=dict)
    arguments: tuple[str, ...] | None = None
    python: str | None = None
    path: Path | None = None
    start: str | None = None
    command: tuple[str, ...] | None = None
    program: str | None = None
    stdin: Path | None = None
    around: bool = False
    also: tuple[Path, ...] = ()

    def __or__(self, other: Intervention) -> Intervention:
        return Intervention(
            {**self.env, **other.env},
            {**self.plan, **other.plan},
            {**self.files, **other.files},
            {**self.times, **other.times},
            self.arguments if other.arguments is None else other.arguments,
            other.python or self.python,
            other.path or self.path,
            other.start or self.start,
            self.command if other.command is None else other.command,
            other.program or self.program,
            other.stdin or self.stdin,
            other.around or self.around,
            tuple(dict.fromkeys((*self.also, *other.also))),
        )

    @property
    def key(self) -> str:
        """A key that is equal for equal interventions."""
        parts = (
            self.env, self.plan, self.files, self.times, self.arguments, self.python, self.path, self.start,
            self.command, self.program, self.stdin, self.around, self.also,
        )  # fmt: skip
        return json.dumps(parts, sort_keys=True, default=str)


@dataclass(frozen=True)
class Candidate:
    """One possible cause. If `imposed` is None it cannot be tried here, and `why` is the reason.

    `kind`: difference (a recorded fact differs), probe (no recorded fact differs, but the stage suggests it)
    or replay (the other side's tensors are imposed: this locates a difference but does not explain it).
    `parts`: the candidates that are first tried together as this one. `variable`: it is an environment
    variable. `name`: the file, variable or setting; with the topic it identifies the candidate, whatever its
    words.
    """

    topic: str
    words: str
    fix: str
    imposed: Intervention | None
    kind: Kind = Kind.DIFFERENCE
    why: str = ""
    parts: tuple[Candidate, ...] = ()
    variable: bool = False
    name: str = ""

    @property
    def subjects(self) -> tuple[Subject, ...]:
        """The subjects of this candidate; for a group, those of all parts."""
        if self.parts:
            return tuple(subject for part in self.parts for subject in part.subjects)
        return (Subject(self.topic, self.name, self.kind),)


def joined(several: Sequence[Candidate]) -> Intervention:
    """Return the combination of all these interventions."""
    together = Intervention()
    for each in several:
        together |= each.imposed or Intervention()
    return together


@dataclass(frozen=True)
class Other:
    """The side that is imitated: its facts, its observe folder, and its files and interpreter, if they are on
    this computer.

    `cores`: the number that this computer can give to a run. `kept`: a folder with that side's versions of
    files, named by their sha256. `made`: files of its folder that its run created.
    """

    facts: Facts
    observe: Path | None = None
    folder: Path | None = None
    python: str | None = None
    cores: int = 1
    kept: Path | None = None
    made: frozenset[str] = frozenset()
    beside: Path | None = None
    """The folder of its program, if it is on this computer."""


def as_if_recorded(repeated: Facts, recorded: Facts, imposed: Intervention) -> Facts:
    """Return the facts of a repeated run as if it had run at the place of `recorded`: with that run's paths,
    and without the variables that were `imposed`.
    """
    given = {name: value for name, value in imposed.env.items() if value is not None}
    kept = {n: v for n, v in (recorded.get("variables") or {}).items() if n not in imposed.env}
    beside = {name: recorded[name] for name in ("cwd", "start", "command", "stdin") if name in recorded}
    told: dict[str, Any] = {"cwd": str(imposed.path)} if imposed.path else {}
    if imposed.start:
        told["start"] = {**(recorded.get("start") or {}), "in": imposed.start}
    if imposed.stdin is not None:
        told["stdin"] = imposed.stdin.name if imposed.stdin.name != "null" else None
    if imposed.command is not None:
        told["command"] = imposed.command
    return named_by_variables({**repeated, **beside, **told, "variables": {**kept, **given}})
