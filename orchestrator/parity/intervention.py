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
"""Folders that are no project's neighbourhood."""


@dataclass(frozen=True)
class Intervention:
    """What one run is given beyond what it had. Two can be joined by `|`; the right one wins.

    `env`: variables to set, None to unset. `plan`: see runtime.replay.interventions. `files`: where the run
    looks for a file (relative to its folders, or absolute) → the file whose bytes to put there, None to leave
    it out; of a folder, the name alone is put there.
    `times`: the same → when it was last changed (Unix seconds). `arguments` and `python` replace the run's
    own. `path`: where its working folder seems to lie; what is in it stays its own. `start`: from
    which folder the program is started, seen from its own (..: from the one above). `command`: the
    whole command line where it is not simply Python's, see confirm_program.worded. `program`: the name of
    the program that is run instead, in the same folder. `stdin`: the file that it is given as standard
    input. `around`: at `path`, it sees what lies around that folder there, not what lies around its own.
    `also`: folders of the other side that show its own copy, too, wherever it has mounts.
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
    """One thing that may be the cause. `imposed` None: it cannot be tried here, and `why` says the reason.

    `kind`: difference (the two sides' facts differ in it), probe (nothing recorded differs, but the stage
    suggests it) or replay (the other side's tensors instead of its circumstances: it locates, it explains
    nothing). `parts`: what it consists of, where several things are tried as one first. `variable`: it is
    one of the environment. `name`: which file, variable or setting it imposes; with the topic that says what
    it is about, however it is worded.
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
        """The subjects of this candidate: of several that are tried as one, each of them."""
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
    """The side that is imitated: its facts, its observe folder, where its files and its interpreter are here,
    if they are. `cores`: how many this computer can give to a run. `kept`: a folder of files as that side had
    them, each called by its sha256. `made`: files of its folder that its run made."""

    facts: Facts
    observe: Path | None = None
    folder: Path | None = None
    python: str | None = None
    cores: int = 1
    kept: Path | None = None
    made: frozenset[str] = frozenset()
    beside: Path | None = None
    """Where its program lies, if it is here."""


def as_if_recorded(repeated: Facts, recorded: Facts, imposed: Intervention) -> Facts:
    """Return the facts of a repeated run with facts that are stored beside recordings: the place of
    `recorded`, and its variables without what was `imposed`.
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
