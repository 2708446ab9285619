"""One call of a sweep, as the command line that repeats it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.profile.overrides import redacted


@dataclass(frozen=True)
class SweepCall:
    """`options`: by their names on the command line, as `max-price`; None or False if not given."""

    profile: str | Path
    matrix: Mapping[str, Sequence[object]]
    overrides: Sequence[str]
    options: Mapping[str, object]

    def words(self, **changed: object) -> list[str]:
        """Return the words of the command, with gaps for values that may be secrets. `changed`: other values
        of options; None or False leaves one out.
        """
        words = ["orch", "sweep", str(self.profile)]
        for name, values in self.matrix.items():
            words += ["--matrix", f"{name}={','.join(map(str, values))}"]
        for name, value in {**self.options, **changed}.items():
            if value not in (None, False):
                words += [f"--{name}"] if value is True else [f"--{name}", str(value)]
        return [*words, *(word for each in redacted(self.overrides) for word in ("--set", each))]

    def command(self, **changed: object) -> str:
        return shlex.join(self.words(**changed))
