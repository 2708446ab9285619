"""Derive a verdict from repeated runs: confirmed, cleared, unstable, within the tolerance or not. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from orchestrator.model import DriftBand, Subject, Tried, Verdict
from orchestrator.model.outcomes import Conclusion, Outcome, Stage
from orchestrator.parity.changes import SAME_JOB
from orchestrator.parity.intervention import Candidate
from orchestrator.parity.ladder import Finding, compare_stages
from orchestrator.parity.naming import LETTERS, TWO_RUNS, SideNames
from orchestrator.parity.recording import STAGES, Recording
from orchestrator.parity.rounding_tolerance import Drift, RoundingTolerance
from orchestrator.parity.verdict import differ_first, divergence_of
from orchestrator.parity.wording import STAGE_WORDS, located

ARITHMETIC = frozenset(("threads", "isa", "onednn", "determinism", "devices"))
"""Topics that change only the order and the instructions with which numbers are summed."""

Place = tuple[int, int]
"""Where two runs first differ: step (from 1), index of the stage."""


def place(a: Recording, b: Recording) -> Place | None:
    """Return where two recordings first differ; None if they are equal, including the number of steps.

    For a differing file, the place where it first changes what is computed.
    """
    outcome = compare_stages(a, b)
    if outcome.finding:
        seen = outcome.finding.shows or outcome.finding
        return seen.step, STAGES.index(seen.stage)
    return None if len(a.steps) == len(b.steps) else (outcome.steps + 1, 0)


@dataclass(frozen=True)
class Diagnosis:
    """What repeated runs showed about a difference.

    `causes` together, and no fewer, make the runs equal (empty: nothing does). `until`: the place from which
    two runs of one side differ, after which nothing can be compared; None if it does not. `tried`: everything
    that was examined; `suspects`: what was not cleared, the most probable first.
    """

    causes: tuple[Candidate, ...] = ()
    tried: tuple[Tried, ...] = ()
    untried: str | None = None
    until: Place | None = None
    located: str = ""
    suspects: tuple[Candidate, ...] = ()
    acting: tuple[Candidate, ...] = ()
    """Differences that are sufficient, but may be effects of the causes."""
    symptom: Candidate | None = None
    """A difference that is sufficient, but follows from something that was not tried; it is no cause."""


def conclude(
    first: Verdict,
    finding: Finding | None,
    diagnosis: Diagnosis,
    tolerance: RoundingTolerance | None,
    drift: Drift,
    names: SideNames = LETTERS,
) -> Verdict:
    """Return the verdict `first` on two recordings, extended by what repeated runs showed."""
    first = _less_cleared(first, finding, diagnosis, names) if finding else first
    measured = _tolerance_facts(tolerance, drift) if tolerance else None
    causes = diagnosis.causes
    verdict = replace(first, tried=diagnosis.tried, untried=diagnosis.untried, band=measured)
    if causes:
        told = _told(causes)
        because = "; together with: ".join(words for words, _ in told)
        verdict = replace(
            verdict,
            cause=f"Confirmed: {because}.",
            because=because,
            about=tuple(subject for cause in causes for subject in cause.subjects),
            confirmed=True,
            fix=" ".join(dict.fromkeys(fix for _, fix in told)),
        )
    else:
        verdict = _suspected(verdict, diagnosis)
    grade = _grade(first, finding, diagnosis.acting or causes, tolerance, drift)
    return replace(verdict, verdict=grade).with_detail()


def _less_cleared(first: Verdict, finding: Finding, diagnosis: Diagnosis, names: SideNames) -> Verdict:
    """Return the verdict, without a file that was named as the first difference and has no effect on it.

    It is replaced by the file that has an effect, or by the place where the difference shows.
    """
    if finding.stage != Stage.FILES or finding.shows is None or first.divergence is None:
        return first
    named = Subject("data", finding.tensor)
    data = [each for each in diagnosis.tried if each.topic == "data"]
    outcomes = {each.outcome for each in data if named in each.subjects}
    guilty = next((each for each in data if each.outcome == Outcome.CONFIRMED and each.subjects), None)
    innocent = {Outcome.CLEARED, Outcome.NOT_NEEDED}
    if not outcomes & (innocent | {Outcome.FOLLOWS} if guilty else innocent):
        return first
    if guilty:
        name = guilty.subjects[0].name
        found = replace(first.divergence, tensor=name, detail=guilty.words, others=0)
        where = f"{STAGE_WORDS[Stage.FILES]}: {name} ({guilty.words})"
    else:
        found, where = divergence_of(finding.shows, names), located(finding.shows, names)
    return replace(first, divergence=found, summary=differ_first(finding.step, where))


def _suspected(verdict: Verdict, diagnosis: Diagnosis) -> Verdict:
    """Return the suspicion, or the next one if it was cleared; and where the difference is, if known."""
    innocent = {
        subject for each in diagnosis.tried if each.outcome == Outcome.CLEARED for subject in each.subjects
    }
    if diagnosis.symptom:
        innocent |= {*diagnosis.symptom.subjects}
    if innocent & {*verdict.about}:
        next_ = next(iter(diagnosis.suspects), None)
        verdict = replace(verdict, cause=_NOBODY, because="", about=(), fix=None)
        if next_:
            cause = f"Suspected: {next_.words}."
            verdict = replace(verdict, cause=cause, because=next_.words, about=next_.subjects, fix=next_.fix)
    return replace(verdict, cause=f"{verdict.cause or ''} {diagnosis.located}".strip() or None)


_NOBODY = "Not known: no recorded difference that was tried explains it."

MOST_TOLD = 2
"""Up to so many files are described one by one, with what to do about each."""


def _told(causes: Sequence[Candidate]) -> list[tuple[str, str]]:
    """Return (words, fix) of each cause; of many files only their names."""
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


def _grade(
    first: Verdict,
    finding: Finding | None,
    causes: Sequence[Candidate],
    tolerance: RoundingTolerance | None,
    drift: Drift,
) -> Conclusion:
    """Return EQUIVALENT only if the difference is as small as rounding for this model, and the sides run
    the same job.
    """
    if finding is None or first.verdict not in (Conclusion.EQUIVALENT, Conclusion.DIVERGENT):
        return first.verdict
    if finding.stage not in drift or finding.kind != "value":
        return first.verdict
    if any(cause.topic in (*SAME_JOB, "data") for cause in causes):
        return Conclusion.DIVERGENT
    if causes and all(cause.topic in ARITHMETIC for cause in causes):
        within = finding.rounding or (tolerance and tolerance.holds(drift))
        return Conclusion.EQUIVALENT if within else Conclusion.DIVERGENT
    if causes:
        return Conclusion.EQUIVALENT if finding.rounding else Conclusion.DIVERGENT
    if tolerance:
        return first.verdict if tolerance.holds(drift) else Conclusion.DIVERGENT
    return first.verdict


def _tolerance_facts(tolerance: RoundingTolerance, drift: Drift) -> DriftBand:
    limits = {
        stage: tuple(tolerance.limit(stage, step) for step in range(len(steps)))
        for stage, steps in tolerance.drift.items()
    }
    apart = {stage: tuple(steps) for stage, steps in drift.items()}
    return DriftBand(limits, apart, tolerance.flips, tolerance.margin)


# ---------------------------------------------------------------- a script that differs from itself


class Randomness(Enum):
    """A source of randomness in a script that is different in each run."""

    GLOBAL_SEEDS = "global seeds"
    GENERATORS = "generators of its own"
    CHANGING_SEED = "a seed that changes"
    OPERATIONS = "operations"
    HASHES = "hashes"
    LISTINGS = "listings"
    THREADS = "threads"


@dataclass(frozen=True)
class Remedy:
    """An intervention on a script that differs from itself, and the cause that is confirmed if it makes the
    script repeatable.
    """

    kind: Randomness
    words: str
    fix: str


@dataclass(frozen=True)
class Unseeded:
    """A `generator`, such as numpy.random.default_rng, created without a seed; `place`: file and line."""

    generator: str
    place: str


SEEDS = Remedy(
    Randomness.GLOBAL_SEEDS,
    "nothing seeds",
    "Call keras.utils.set_random_seed(1) at the top of the script, before any data or model is made.",
)
GENERATORS = Remedy(
    Randomness.GENERATORS,
    "random.Random() or numpy.random.default_rng() is called without a seed",
    "Give every generator a seed: random.Random(1), numpy.random.default_rng(1).",
)


def generators(where: Sequence[Unseeded]) -> Remedy:
    """Return the remedy GENERATORS, with the places where generators were created without a seed."""
    if not where:
        return GENERATORS
    said = ", ".join(f"{each.generator}() in {each.place}" for each in where[:3])
    said += ", …" if len(where) > 3 else ""
    fix = f"Give it a seed: {where[0].generator}(1)." if len(where) == 1 else GENERATORS.fix
    return replace(GENERATORS, words=f"a generator is made without a seed: {said}", fix=fix)


OWN_SEEDS = Remedy(
    Randomness.CHANGING_SEED,
    "the seed itself is different in each run (taken from time, process or host)",
    "Use a constant: keras.utils.set_random_seed(1).",
)
OPERATIONS = Remedy(
    Randomness.OPERATIONS,
    "operations that are not deterministic",
    "Call tf.config.experimental.enable_op_determinism() after seeding.",
)
HASHES = Remedy(
    Randomness.HASHES,
    "the order of sets or the values of hash(), which are different in each Python process",
    "Export PYTHONHASHSEED=0, or sort what comes from sets.",
)
LISTINGS = Remedy(
    Randomness.LISTINGS,
    "the order in which folders list their files",
    "Wrap glob, listdir and iterdir in sorted().",
)
THREADS = Remedy(
    Randomness.THREADS,
    "the order in which threads or processes finish, or random numbers of the operating system: they differ "
    "in each run, and no seed fixes that",
    "Take results in the order in which the work was given out: map() instead of as_completed(), ordered "
    "queues, and deterministic=True for datasets.",
)
"""No intervention exists for it: it is suspected if an order changes and no other remedy helps."""

_RANDOM = {
    Stage.BATCH: "the data (shuffle, augmentation, generated records)",
    Stage.INITIAL: "the initial weights",
    Stage.ACTIVATION: "the random numbers within a step (dropout, noise)",
}


def describe_change(remedies: Sequence[Remedy], stage: Stage | None) -> str:
    """Describe what successful remedies say about a script that first differs from itself at `stage`."""
    what = _RANDOM.get(stage, "its random numbers") if stage else "its random numbers"
    return " and ".join(
        f"{remedy.words} {what}" if remedy.kind is Randomness.GLOBAL_SEEDS else remedy.words
        for remedy in remedies
    )


def unstable(
    finding: Finding,
    remedies: Sequence[Remedy],
    steps: int,
    compared: int,
    *,
    suspected: Sequence[Remedy] = (),
    tried: Sequence[Tried] = (),
) -> Verdict:
    """Return the verdict on a script that differs from itself.

    `remedies`: what made it stable together. `suspected`: the probable cause if nothing did, judged by the
    states of its random generators.
    """
    words = describe_change(remedies or suspected, finding.stage)
    fix = " ".join(remedy.fix for remedy in remedies or suspected)
    because = words or "randomness that none of the usual seeds fixes"
    found = (
        "The script differs from itself on this computer: two runs of it first differ in step "
        f"{finding.step}, in {located(finding, TWO_RUNS)}. Fix that first: "
        "until then, comparing machines says nothing."
    )
    return Verdict(
        Conclusion.UNSTABLE,
        divergence=divergence_of(finding, TWO_RUNS),
        cause=f"{'Confirmed' if remedies else 'Suspected'}: {because}.",
        because=because,
        confirmed=bool(remedies),
        compared=compared,
        steps=steps,
        summary=found,
        fix=fix or None,
        tried=tuple(tried),
    ).with_detail()


_ANOTHER_JOB = frozenset((*SAME_JOB, "data", "environment", "settings", "keras_json", "paths"))
"""Topics of causes for which the sides run different jobs, even if the script is not deterministic either."""


def besides(verdict: Verdict, itself: Verdict) -> Verdict:
    """Return the verdict on two sides whose script also differs from itself, at a later place than the sides
    first differ. `verdict` explains the first difference, `itself` that of two runs on one computer. If the
    sides do not run the same job, `verdict` stays; otherwise the result is UNSTABLE.
    """
    if not verdict.confirmed:
        return itself
    step, stage = (itself.divergence.step, itself.divergence.stage) if itself.divergence else (1, "")
    why = itself.because if itself.confirmed else f"probably {itself.because}"
    also = f"The script also differs from itself, from step {step}, {stage} on: {why}."
    confirmed = {each.topic for each in verdict.tried if each.outcome == Outcome.CONFIRMED}
    fix = " ".join(filter(None, (verdict.fix, itself.fix)))
    if confirmed & _ANOTHER_JOB:
        return replace(verdict, cause=f"{verdict.cause} {also}", fix=fix).with_detail()
    before = f"Besides, the two sides differ before that: {verdict.because}."
    return replace(itself, cause=f"{itself.cause} {before}", fix=fix).with_detail()
