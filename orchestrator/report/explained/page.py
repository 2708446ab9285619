"""The structure of a page, and sentences that several pages share."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Explanation:
    """`exits`: the exit codes of such an error. `left`: what still exists then, and may cost money."""

    code: str
    title: str
    exits: tuple[int, ...]
    what: str
    left: str
    next: str

    def as_json(self) -> dict[str, object]:
        return asdict(self)


AS_BEFORE = "What existed before still exists. Nothing was created by this call."
RUNS_ON = "The machine runs on, and costs, until its deadline or `orch down`."
HOME = "The record, the output and the files that were written are in `runs/RUN/`."
GONE = "The machine is gone and costs nothing more."
