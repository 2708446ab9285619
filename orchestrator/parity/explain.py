"""From what repeated runs showed to a verdict: confirmed, cleared, unstable, within the band or not. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from orchestrator.model import DriftBand, Tried, Verdict
from orchestrator.parity.changes import SAME_JOB
from orchestrator.parity.intervention import Candidate
from orchestrator.parity.ladder import Finding, compare_stages
from orchestrator.parity.recording import STAGES, Recording
from orchestrator.parity.rounding_tolerance import Drift, RoundingTolerance
from orchestrator.parity.verdict import DIVERGENT, EQUIVALENT, UNSTABLE, divergence_of, located

ARITHMETIC = frozenset(("threads", "isa", "onednn", "determinism", "devices"))
"""Topics that change in which order and with which instructions numbers are summed, and nothing else."""

Place = tuple[int, int]
"""Where two runs first differ: step (from 1), index of the stage."""


def place(a: Recording, b: Recording) -> Place | None:
    """Where two recordings first differ; None where they are equal, number of steps included.

    Of files it is where they first change what is computed: a file that is another and changes nothing does
    not stand before what does.
    """
    outcome = compare_stages(a, b)
    if outcome.finding:
        seen = outcome.finding.shows or outcome.finding
        return seen.step, STAGES.index(seen.stage)
    return None if len(a.steps) == len(b.steps) else (outcome.steps + 1, 0)


@dataclass(frozen=True)
class Diagnosis:
    """What repeated runs found out about a difference.

    `causes` together, and no fewer, make the runs equal (empty: nothing does). `until` is where the script
    differs from itself, None where it does not: nothing can be compared from there on. `tried` holds all that
    was looked into, and `suspects` what was not cleared, the most probable first.
    """

    causes: tuple[Candidate, ...] = ()
    tried: tuple[Tried, ...] = ()
    untried: str | None = None
    until: Place | None = None
    located: str = ""
    suspects: tuple[Candidate, ...] = ()
    acting: tuple[Candidate, ...] = ()
    """Differences that are enough by themselves and lie nearer to the numbers than their causes."""
    symptom: Candidate | None = None
    """A difference that is enough by itself but follows from something that was not tried; it is no cause."""


def conclude(
    first: Verdict,
    finding: Finding | None,
    diagnosis: Diagnosis,
    band: RoundingTolerance | None,
    drift: Drift,
) -> Verdict:
    """The verdict `first` on two recordings, with what repeated runs showed."""
    first = _less_cleared(first, finding, diagnosis) if finding else first
    measured = _band(band, drift) if band else None
    causes = diagnosis.causes
    verdict = replace(first, tried=diagnosis.tried, untried=diagnosis.untried, band=measured)
    if causes:
        told = _told(causes)
        verdict = replace(
            verdict,
            cause=f"Confirmed: {'; together with: '.join(words for words, _ in told)}.",
            confirmed=True,
            fix=" ".join(dict.fromkeys(fix for _, fix in told)),
        )
    else:
        verdict = _suspected(verdict, diagnosis)
    return replace(
        verdict,
        verdict=_grade(first, finding, diagnosis.acting or causes, band, drift),
        detail=_detail(first, verdict),
    )


def _less_cleared(first: Verdict, finding: Finding, diagnosis: Diagnosis) -> Verdict:
    """The verdict without a file that was named as the first difference and has nothing to do with it: what
    has is another file, or stands where the difference shows."""
    if finding.stage != "files" or finding.shows is None or first.divergence is None:
        return first
    mine = f"the file {finding.tensor} is "
    data = [each for each in diagnosis.tried if each.topic == "data"]
    outcomes = {each.outcome for each in data if each.words.startswith(mine)}
    guilty = next((each.words for each in data if each.outcome == "confirmed"), None)
    innocent = {"cleared", "not needed"}
    if not outcomes & (innocent | {"follows"} if guilty else innocent):
        return first
    shows = divergence_of(finding.shows)
    if guilty:
        name = guilty.removeprefix("the file ").split(" is ")[0]
        found = replace(first.divergence, tensor=name, detail=guilty, others=0)
        said = f"the files that are read: {name} ({guilty})"
    else:
        found, said = shows, located(finding.shows)
    before = f"{located(finding)}. It shows in {located(finding.shows)}"
    return replace(first, divergence=found, detail=first.detail.replace(before, said))


def _suspected(verdict: Verdict, diagnosis: Diagnosis) -> Verdict:
    """The suspicion, unless it was cleared: then the next; and where the difference lies, if known."""
    cause, fix = verdict.cause or "", verdict.fix
    symptom = diagnosis.symptom is not None and diagnosis.symptom.words in cause
    if symptom or any(each.outcome == "cleared" and each.words in cause for each in diagnosis.tried):
        next_ = next(iter(diagnosis.suspects), None)
        cause = f"Suspected: {next_.words}." if next_ else _NOBODY
        fix = next_.fix if next_ else None
    return replace(verdict, cause=f"{cause} {diagnosis.located}".strip() or None, fix=fix)


_NOBODY = "Not known: nothing that was recorded of the two sides and tried explains it."

MOST_TOLD = 2
"""Files that are told one by one, with what to do about each."""


def _told(causes: Sequence[Candidate]) -> list[tuple[str, str]]:
    """(words, fix) of each cause; of many files their names."""
    data = [cause for cause in causes if cause.topic == "data"]
    if len(data) <= MOST_TOLD:
        return [(cause.words, cause.fix) for cause in causes]
    rest = [(cause.words, cause.fix) for cause in causes if cause.topic != "data"]
    some = "; ".join(cause.words for cause in data[:3]) + ("; …" if len(data) > 3 else "")
    fix = (
        f"Decide which side has the right files, and sync all {len(data)}; let the script fail where one is "
        "missing."
    )
    return [(f"{len(data)} files that only together explain it: {some}", fix), *rest]


def _detail(first: Verdict, verdict: Verdict) -> str:
    """The paragraph of `first`, its suspicion replaced by what is known now."""
    known = f"{first.cause} {first.fix}"
    now = " ".join(filter(None, (verdict.cause, verdict.fix, verdict.untried)))
    return first.detail.replace(known, now) if known in first.detail else f"{first.detail} {now}"


def _grade(
    first: Verdict,
    finding: Finding | None,
    causes: Sequence[Candidate],
    band: RoundingTolerance | None,
    drift: Drift,
) -> str:
    """EQUIVALENT only where the difference is rounding-sized for this model and no other job is the cause."""
    if finding is None or first.verdict not in (EQUIVALENT, DIVERGENT):
        return first.verdict
    if finding.stage not in drift or finding.kind != "value":
        return first.verdict
    if any(cause.topic in (*SAME_JOB, "data") for cause in causes):
        return DIVERGENT
    if causes and all(cause.topic in ARITHMETIC for cause in causes):
        return EQUIVALENT if finding.rounding or (band and band.holds(drift)) else DIVERGENT
    if causes:
        return EQUIVALENT if finding.rounding else DIVERGENT
    if band:
        return EQUIVALENT if band.holds(drift) and first.verdict == EQUIVALENT else DIVERGENT
    return first.verdict


def _band(band: RoundingTolerance, drift: Drift) -> DriftBand:
    limits = {
        stage: tuple(band.limit(stage, step) for step in range(len(steps)))
        for stage, steps in band.drift.items()
    }
    apart = {stage: tuple(steps) for stage, steps in drift.items()}
    return DriftBand(limits, apart, band.flips, band.margin)


# ---------------------------------------------------------------- a script that differs from itself


@dataclass(frozen=True)
class Remedy:
    """What was imposed on a script that differs from itself, and what it says about the script."""

    words: str
    fix: str


SEEDS = Remedy(
    "nothing seeds {what}",
    "Call keras.utils.set_random_seed(1) at the top of the script, before any data or model is made.",
)
GENERATORS = Remedy(
    "random.Random() or numpy.random.default_rng() is called without a seed",
    "Give every generator a seed: random.Random(1), numpy.random.default_rng(1).",
)


def generators(where: Sequence[str]) -> Remedy:
    """GENERATORS, with what was seen to be called and where, such as "random.Random() in train.py:12"."""
    if not where:
        return GENERATORS
    said = ", ".join(where[:3]) + (", …" if len(where) > 3 else "")
    seeded = [name for name in ("random.Random", "numpy.random.default_rng") if f"{name}()" in said]
    fix = f"Give it a seed: {' and '.join(f'{name}(1)' for name in seeded)}."
    return Remedy(f"a generator is made without a seed: {said}", fix if len(where) == 1 else GENERATORS.fix)


OWN_SEEDS = Remedy(
    "the seed itself is another one in each run (taken from time, process or host)",
    "Use a constant: keras.utils.set_random_seed(1).",
)
OPERATIONS = Remedy(
    "operations that are not deterministic",
    "Call tf.config.experimental.enable_op_determinism() after seeding.",
)
HASHES = Remedy(
    "the order of sets or the values of hash(), which Python draws anew for each process",
    "Export PYTHONHASHSEED=0, or sort what comes from sets.",
)
LISTINGS = Remedy(
    "the order in which folders list their files", "Wrap glob, listdir and iterdir in sorted()."
)
THREADS = Remedy(
    "the order in which threads or processes finish, or numbers drawn from the operating system: the order "
    "is another one in each run, and no seed mends that",
    "Take results in the order in which the work was given out: map() instead of as_completed(), ordered "
    "queues, and deterministic=True for datasets.",
)
"""Nothing imposes that: it is suspected where an order changes and nothing else mends it."""

_RANDOM = {
    "batch": "the data (shuffle, augmentation, generated records)",
    "initial": "the initial weights",
    "activation": "the random numbers within a step (dropout, noise)",
}


def describe_change(remedies: Sequence[Remedy], stage: str) -> str:
    """What remedies together say of a script that first differs from itself at `stage`."""
    what = _RANDOM.get(stage, "its random numbers")
    return " and ".join(remedy.words.format(what=what) for remedy in remedies)


def unstable(
    finding: Finding,
    remedies: Sequence[Remedy],
    steps: int,
    compared: int,
    *,
    suspected: Sequence[Remedy] = (),
    tried: Sequence[Tried] = (),
) -> Verdict:
    """The verdict on a script that differs from itself; `remedies` together were seen to make it stable.

    Where none were, `suspected` are what its generators make probable.
    """
    words = describe_change(remedies or suspected, finding.stage)
    fix = " ".join(remedy.fix for remedy in remedies or suspected)
    sure = "Confirmed" if remedies else "Suspected"
    cause = f"{sure}: {words or 'randomness that none of the usual seeds fixes'}."
    detail = (
        "The script differs from itself on this computer: two runs of it first differ in step "
        f"{finding.step}, in {located(finding)}. Comparing machines says "
        f"nothing until that is mended. {cause} {fix}"
    )
    return Verdict(
        UNSTABLE,
        divergence=divergence_of(finding),
        cause=cause,
        confirmed=bool(remedies),
        compared=compared,
        steps=steps,
        detail=detail.strip(),
        fix=fix or None,
        tried=tuple(tried),
    )


_ANOTHER_JOB = frozenset((*SAME_JOB, "data", "environment", "settings", "keras_json", "paths"))
"""Topics of causes that make the two sides another job, whatever the script does with its random numbers."""


def besides(found: Verdict, itself: Verdict) -> Verdict:
    """The verdict on two sides of a script that also differs from itself, later than they first differ.

    `found` explains the first difference, `itself` what differs between two runs on one computer. What makes
    the sides another job stands, and the rest of the comparison is UNSTABLE.
    """
    if not found.confirmed:
        return itself
    step, stage = (itself.divergence.step, itself.divergence.stage) if itself.divergence else (1, "")
    why = (itself.cause or "").rstrip(".").replace("Confirmed: ", "").replace("Suspected: ", "probably ")
    also = f"The script also differs from itself, from step {step}, {stage} on: {why}."
    confirmed = {each.topic for each in found.tried if each.outcome == "confirmed"}
    fix = " ".join(filter(None, (found.fix, itself.fix)))
    if confirmed & _ANOTHER_JOB:
        cause = f"{found.cause} {also}"
        return replace(
            found, cause=cause, fix=fix, detail=f"{found.detail} {also} {itself.fix or ''}".strip()
        )
    seen = (found.cause or "").replace("Confirmed: ", "")
    more = f"Besides, the two sides differ before that: {seen}"
    return replace(
        itself,
        cause=f"{itself.cause} {more}",
        fix=fix,
        detail=f"{itself.detail} {more} {found.fix or ''}".strip(),
    )
