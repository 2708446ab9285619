"""A scenario as a value: two sides of one script, what is planted between them, what must be said of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

Content = str | bytes | None
"""What a file of a project holds; None: it is not there."""


@dataclass(frozen=True)
class Side:
    """One run of the script.

    `edits`: file → (old, new) pairs, each old occurring exactly once. `files` come over those of the
    project, in this order last; a name that ends in "/" is that of an empty folder. `cpus` are the processors
    it may use. `folder` is the project's name and `start` the folder below it where the command is typed. In
    `environ` and `command`, {folder} stands for the project's folder, {bin} for that of Python, {python} and
    {script} for what is run by default, {interpreter} for a Python that has imported nothing yet.
    `memory`: the project lies in the computer's memory, where there is such a file system. `host`: the
    computer's name, where it may be changed. `environment`: which of tests/parity/locks it runs in; "" for
    that of all other tests.
    """

    arguments: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    edits: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    files: Mapping[str, Content] = field(default_factory=dict)
    cpus: int = 2
    folder: str = "project"
    start: str = "."
    reversed_files: bool = False
    memory: bool = False
    host: str = ""
    environment: str = ""
    command: tuple[str, ...] = ("{python}", "{script}")

    def over(self, common: Side) -> Side:
        """This side, on top of what both have in common."""
        edits = {
            name: (*common.edits.get(name, ()), *self.edits.get(name, ()))
            for name in {**common.edits, **self.edits}
        }
        return replace(
            self,
            arguments=(*common.arguments, *self.arguments),
            environ={**common.environ, **self.environ},
            edits=edits,
            files={**common.files, **self.files},
            environment=self.environment or common.environment,
            command=common.command if self.command == Side.command else self.command,
        )


@dataclass(frozen=True)
class Expected:
    """`verdicts` and `stages`: any of them will do (no stage: none is named). `cause`: regular expressions,
    each of which must be found in the cause; none: nothing may be accused. `confirmed` None: either."""

    verdicts: tuple[str, ...]
    stages: tuple[str, ...] = ()
    cause: tuple[str, ...] = ()
    confirmed: bool | None = None


@dataclass(frozen=True)
class Scenario:
    """`project` names the files and the script (see projects)."""

    name: str
    project: str
    expected: Expected
    a: Side = Side()
    b: Side = Side()
    both: Side = Side()
    steps: int = 3
    confirm: bool = True
    local: bool = False
    """Whether the planted difference acts on some computers only (by processor or file system): where it does
    not, IDENTICAL is right."""
    missed: str = ""
    """Why orch does not find it yet, where that is known. It counts as missed all the same."""

    @property
    def is_innocent(self) -> bool:
        """Whether nothing is planted that acts."""
        return "IDENTICAL" in self.expected.verdicts

    @property
    def slug(self) -> str:
        """The name as part of a folder's."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")

    @property
    def sides(self) -> tuple[Side, Side]:
        """Two runs, even where nothing is planted between them."""
        a, b = self.a.over(self.both), self.b.over(self.both)
        return a, b if a != b else replace(b, environ={**b.environ, "RUN": "2"})


def diverges(stage: str, *cause: str, confirmed: bool | None = None) -> Expected:
    """DIVERGENT at one of the stages named in `stage` (blank-separated)."""
    return Expected(("DIVERGENT",), tuple(stage.split()), cause, confirmed)


def rounds(stage: str, *cause: str, confirmed: bool | None = True) -> Expected:
    """EQUIVALENT: rounding, of a cause that is named."""
    return Expected(("EQUIVALENT",), tuple(stage.split()), cause, confirmed)


def innocent(*verdicts: str) -> Expected:
    """Nothing to be found, nobody to be accused."""
    return Expected(verdicts or ("IDENTICAL", "EQUIVALENT"))


def unstable(*cause: str) -> Expected:
    """It differs from itself."""
    return Expected(("UNSTABLE",), (), cause)


def edit(name: str, *pairs: tuple[str, str]) -> Mapping[str, tuple[tuple[str, str], ...]]:
    return {name: pairs}
