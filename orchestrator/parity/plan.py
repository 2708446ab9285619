"""Choose the interventions to try: one for each recorded difference, and those that the stage suggests. Pure.

A candidate imposes one thing of the other side on the side that is run again. Instruction sets and cores can
only be reduced. Contents of files come before their paths: a path is a cause only if the content there is not
sufficient.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from orchestrator.model.outcomes import Kind, Stage
from orchestrator.parity.changes import Change, Facts
from orchestrator.parity.intervention import Candidate, Other, joined
from orchestrator.parity.interventions import other_neighbours, other_packages, other_times, to_intervention
from orchestrator.parity.ladder import Finding
from orchestrator.parity.naming import LETTERS, SideNames
from orchestrator.parity.probes import probes, replays

_INPUT = (
    "source", "arguments", "command", "stdin", "keras", "environment", "data", "start", "paths", "order",
    "cores", "hashing", "timezone", "locale", "policy", "settings", "seed", "host", "determinism", "threads",
    "isa", "onednn", "cache", "folder", "around", "versions",
)  # fmt: skip
_ORDER = {
    Stage.FILES: _INPUT,
    Stage.BATCH: _INPUT,
    Stage.STEPS: _INPUT,
    Stage.INITIAL: (
        "source", "arguments", "command", "stdin", "keras", "environment", "data", "start", "hashing",
        "paths", "policy", "determinism", "locale", "timezone", "order", "cores", "settings", "seed", "host",
        "threads", "isa", "onednn", "cache", "folder", "around", "versions",
    ),
    Stage.GRADIENT: (
        "source", "arguments", "command", "stdin", "keras", "data", "threads", "determinism", "cores",
        "compile", "isa", "onednn", "policy", "environment", "settings", "start", "paths", "seed", "host",
        "cache", "folder", "around", "versions",
    ),
}  # fmt: skip
_ORDER_OF_THE_REST = (
    "source", "arguments", "command", "stdin", "keras", "data", "isa", "onednn", "compile", "threads",
    "determinism", "cores", "policy", "environment", "devices", "settings", "start", "paths", "seed", "host",
    "cache", "folder", "around", "versions",
)  # fmt: skip


def candidates(
    finding: Finding,
    found: Sequence[Change],
    base: str,
    mine: Facts,
    other: Other,
    names: SideNames = LETTERS,
) -> tuple[Candidate, ...]:
    """Return what to try on side `base` ("A" or "B"), most probable first.

    `mine` are the facts of that side, `found` the differences between A and B.
    """
    explained = {change.topic for change in found if change.variable}
    differences = [
        to_intervention(change, base, mine, other)
        for change in found
        if not (change.topic in explained and change.name in _BROUGHT_ABOUT)
    ]
    differences = [
        *_grouped(differences),
        *other_neighbours(base, mine, other, names),
        *other_packages(base, mine, other, names),
    ]
    known = {candidate.topic for candidate in differences}
    suggested = [probe for probe in probes(finding, mine) if probe.topic not in known]
    if finding.stage in (Stage.BATCH, Stage.INITIAL, Stage.FILES):
        suggested += other_times(base, mine, other, names)
    order = _ORDER.get(finding.stage, _ORDER_OF_THE_REST)
    if finding.kind in ("dtype", "missing", "shape"):
        order = ("source", "arguments", "command", "stdin", "keras", "policy", "compile", *order)
    if finding.rounding:
        order = (
            *(topic for topic in order if topic != "data"),
            "data",
        )  # rarely so small an effect
    ranked = sorted(differences, key=lambda each: order.index(each.topic) if each.topic in order else 99)
    return (*ranked, *suggested, *replays(finding, other))


_BROUGHT_ABOUT = frozenset(("intra_op", "onednn", "deterministic_ops", "utc_offsets", "categories", "tf32"))
"""Facts that a variable of the same topic determines: only the variable is tried."""


_MADE_BY_A_PROGRAM = frozenset(
    ("threads", "determinism", "compile", "policy", "cores", "seed", "onednn", "isa")
)
"""Topics that a program may set according to a variable, an argument or a file."""

_TOLD = frozenset(
    ("command", "stdin", "environment", "data", "settings", "hashing", "arguments", "source", "start")
)


def brings_about(each: Candidate, found: Candidate) -> bool:
    """Whether `each` may be the reason why `found` differs.

    An input of a program may determine its settings, and its start folder which files it finds. A seed may
    also be computed from a path or a time.
    """
    if found.topic == "seed" and each.topic in ("folder", "around", "host", "times"):
        return True
    if each is found or each.kind != Kind.DIFFERENCE:
        return False
    if found.topic == "data":
        return each.topic == "start"
    if each.topic == "keras_json":
        return found.topic == "policy" and not found.variable
    return found.topic in _MADE_BY_A_PROGRAM and not found.variable and each.topic in _TOLD


# ---------------------------------------------------------------- differences


MOST_FILES = 2
"""Up to this many files are tried one by one; more are tried as one candidate."""


def _grouped(listed: Sequence[Candidate]) -> Iterator[Candidate]:
    """Put many files into one candidate at first: they often differ together, and each run takes time."""
    left = list(listed)
    for topic, fix in _GROUPS.items():
        able = [each for each in left if each.topic == topic and each.imposed is not None]
        if len(able) > MOST_FILES:
            left = [*(each for each in left if each not in able), as_one_candidate(able, fix)]
    return iter(left)


_GROUPS = {
    "data": "Sync the data: both sides must have the same bytes.",
    "cache": "Delete these on both sides: the libraries create them again.",
}
"""Topics whose candidates are tried as one if there are many, each with its fix."""


def as_one_candidate(parts: Sequence[Candidate], fix: str) -> Candidate:
    """Return the files of one topic as one candidate."""
    whole = joined(parts)
    words = f"{len(parts)} files differ: {'; '.join(each.words for each in parts[:2])}; …"
    return Candidate(parts[0].topic, words, fix, whole, parts=tuple(parts))
