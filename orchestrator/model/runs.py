"""A job, how it ended, and what two runs have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from typing import Annotated, Any, Literal

from .answers import Between, Count, Moment, Most
from .outcomes import Conclusion, ExitReason, Kind, Outcome, Stage
from .trees import TreeLink


@dataclass(frozen=True)
class Job:
    """What to run on one side. argv[0] "python" is `python`; its folder comes first on PATH.

    `trees` empty: run in `cwd` as it is. Otherwise the working folder `<run>/work` is staged from them
    and `cwd` is relative to it. `observe_steps` > 0 records every tensor of the first steps;
    `observe_light` further steps are fingerprinted, and `stop_after_observed` then ends the run. `stdin`:
    the file or named pipe on that side that is its standard input; "" for none. `stall`: seconds without
    progress after which it is ended, 0 for never. `on_nan`: whether a loss that is no number ends it.
    """

    run_id: str
    argv: Annotated[tuple[Annotated[str, Most(1 << 20)], ...], Most(100_000)]
    python: str
    cwd: str = "."
    env: Mapping[str, str] = field(default_factory=dict)
    trees: tuple[TreeLink, ...] = ()
    observe_steps: int = 0
    stop_after_observed: bool = False
    observe_light: int = 0
    stdin: str = ""
    stall: Annotated[float, Between(0, 1 << 30)] = 0.0
    on_nan: Literal["warn", "stop"] = "warn"


@dataclass(frozen=True)
class Noticed:
    """What was wrong with a job while it went on: stalled, not_finite (its loss), disk_low.

    `at`: Unix seconds. `step`: how many steps it had shown by then. `detail` is a sentence for people.
    """

    what: Annotated[str, Most(40)]
    at: Moment
    step: Count | None = None
    detail: Annotated[str, Most(1000)] = ""


@dataclass(frozen=True)
class Exit:
    """How a run ended.

    `reason`: completed, failed, signal, out_of_memory, device_out_of_memory (of a GPU, or of what the
    framework computes on), disk_full, cancelled, observed (stopped after the observed steps), preempted (the
    cloud took its spot machine back), deadline (the machine's time was up, and the job was asked to end),
    stalled (no progress for so long as the profile allows), not_finite (its loss was no number, and the
    profile says that this ends it), lost (the machine went away, or how it ended is not known), results_lost
    (it had ended, and its results went with the machine). `detail` is a sentence for people.
    """

    code: Annotated[int, Between(0, 255)] | None
    signal: Annotated[int, Between(1, 64)] | None
    reason: ExitReason
    detail: Annotated[str, Most(10_000)] = ""
    noticed: Annotated[tuple[Noticed, ...], Most(10)] = ()


@dataclass(frozen=True)
class RunState:
    """`state`: absent, running, ended or lost. `log_bytes` is the length of its output so far."""

    state: Literal["absent", "running", "ended", "lost"]
    exit: Exit | None = None
    log_bytes: Count = 0
    started_at: Moment | None = None
    ended_at: Moment | None = None


@dataclass(frozen=True)
class GpuRoom:
    """One GPU: bytes of its memory, and how many of them are free."""

    name: Annotated[str, Most(200)]
    memory: Count
    memory_free: Count


@dataclass(frozen=True)
class Room:
    """Resources of a machine that jobs may use, and how much is free now. Cores; bytes."""

    cores: Annotated[float, Between(0, 1 << 20)]
    cores_free: Annotated[float, Between(0, 1 << 20)]
    memory: Count
    memory_free: Count
    gpus: Annotated[tuple[GpuRoom, ...], Most(64)] = ()


@dataclass(frozen=True)
class Divergence:
    """Where two runs first differ. `relative` is the relative L2 difference of that tensor, and `others`
    counts further ones in that stage. `shows`: of a file, where it first changed what is computed."""

    step: int
    stage: Stage
    tensor: str
    relative: float | None
    detail: str
    shows: Divergence | None = None
    others: int = 0


@dataclass(frozen=True)
class Subject:
    """What a difference, a suspicion or a trial is about, whatever its values and its wording.

    `topic` is what it bears on; `name` which file, variable or setting.
    """

    topic: str
    name: str
    kind: Kind = Kind.DIFFERENCE


class Reason(Enum):
    """Why a candidate has its outcome. Words for people are in `why`."""

    EQUAL = "with it the runs are equal"
    LATER = "with it they differ later"
    SYMPTOM = "it is enough, and something that was not tried brings it about"
    NO_CHANGE = "with it the run is the same"
    OTHER_CHANGE = "with it the run is another, and not that of the other side"
    CHANCE = "one run with it was equal, another was not"
    SAME_ELSEWHERE = "in another folder the run is the same"
    CONSEQUENCE = "with the cause imposed it is no difference"
    LEFT = "the runs are equal without it"
    FAILED = "the run with it failed"
    BYPASSED = "the run with it read past what it was given"
    FAULT = "orch itself failed"


@dataclass(frozen=True)
class Tried:
    """One thing that might have been the cause, and what became of it.

    `why` says how `outcome` is known, for people.

    Further decisions go by `subjects` (several where things were tried as one) and by `reason`. run.json does
    not hold them.
    """

    words: str
    outcome: Outcome
    why: str = ""
    kind: Kind = Kind.DIFFERENCE
    topic: str = ""
    seconds: float | None = None
    subjects: tuple[Subject, ...] = ()
    reason: Reason | None = None

    def as_json(self) -> dict[str, Any]:
        """One of `candidates` in the `parity` object of `run.json`."""
        return {
            "words": self.words,
            "outcome": self.outcome,
            "why": self.why,
            "kind": self.kind,
            "topic": self.topic,
            "seconds": self.seconds,
        }


@dataclass(frozen=True)
class DriftBand:
    """How far rounding alone drives this model: relative L2 by stage, for each compared step.

    `limit` is the measured drift of `flips` times `margin`; `drift` is that of the two compared runs.
    """

    limit: Mapping[Stage, Sequence[float]]
    drift: Mapping[Stage, Sequence[float]]
    flips: tuple[str, ...]
    margin: float


@dataclass(frozen=True)
class RecordedFact:
    """One fact of two runs' records: its values as text (None: not recorded), and whether they are equal
    (None: one lacks it). `decisive`: a result; where it differs, so do the runs."""

    name: str
    a: str | None
    b: str | None
    equal: bool | None
    decisive: bool = False


@dataclass(frozen=True)
class Verdict:
    """The outcome of comparing two recorded runs.

    `cause` is a sentence or None; `confirmed` only by a counterfactual run; `fix` says what to do.
    `compared` counts the tensors that were compared. `tried` is what was looked into, `untried` why
    something was not. `undeclared`: what one side reads and the other was not sent. `recorded`: what the
    records of two runs without tensors tell instead.

    `detail` is the whole verdict in words, and no text is ever taken apart, for its parts are fields:
    `summary` (what was found), `because` (the cause without how sure it is), `more` (other differences) and
    `not_compared` (what could not be seen). `about`: what the cause is about.
    """

    verdict: Conclusion
    divergence: Divergence | None = None
    cause: str | None = None
    confirmed: bool = False
    compared: int = 0
    steps: int = 0
    detail: str = ""
    fix: str | None = None
    tried: tuple[Tried, ...] = ()
    untried: str | None = None
    band: DriftBand | None = None
    undeclared: tuple[Mapping[str, Any], ...] = ()
    recorded: tuple[RecordedFact, ...] = ()
    summary: str = ""
    because: str = ""
    more: str = ""
    not_compared: tuple[str, ...] = ()
    about: tuple[Subject, ...] = ()

    def with_detail(self) -> Verdict:
        """The verdict with `detail` made of its parts."""
        unseen = f"Not compared: {'; '.join(self.not_compared)}." if self.not_compared else None
        parts = (self.summary, self.cause, self.fix, self.untried, self.more, unseen)
        return replace(self, detail=" ".join(filter(None, parts)))

    def as_json(self) -> dict[str, Any]:
        """The `parity` object of `run.json`."""
        divergence = asdict(self.divergence) if self.divergence else {}
        return {
            "verdict": self.verdict,
            "stage": divergence.get("stage"),
            "tensor": divergence.get("tensor"),
            "relative": divergence.get("relative"),
            "step": divergence.get("step"),
            "difference": divergence.get("detail"),
            "others": divergence.get("others"),
            "shows": divergence.get("shows"),
            "cause": self.cause,
            "confirmed": self.confirmed,
            "fix": self.fix,
            "steps": self.steps,
            "compared": self.compared,
            "detail": self.detail,
            "summary": self.summary or self.detail,
            "not_compared": list(self.not_compared),
            "candidates": [each.as_json() for each in self.tried],
            "untried": self.untried,
            "band": asdict(self.band) if self.band else None,
            "undeclared": [dict(each) for each in self.undeclared],
            "recorded": [asdict(each) for each in self.recorded],
        }
