"""A job, how it ended, and what two runs have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .trees import TreeLink


@dataclass(frozen=True)
class Job:
    """What to run on one side. argv[0] "python" is `python`; its folder comes first on PATH.

    `trees` empty: run in `cwd` as it is. Otherwise the working folder `<run>/work` is staged from them
    and `cwd` is relative to it. `observe_steps` > 0 records every tensor of the first steps;
    `stop_after_observed` then ends the run.
    """

    run_id: str
    argv: tuple[str, ...]
    python: str
    cwd: str = "."
    env: Mapping[str, str] = field(default_factory=dict)
    trees: tuple[TreeLink, ...] = ()
    observe_steps: int = 0
    stop_after_observed: bool = False


@dataclass(frozen=True)
class Exit:
    """How a run ended.

    `reason`: completed, failed, signal, out_of_memory, disk_full, cancelled, observed (stopped after the
    observed steps), preempted (the cloud took its spot machine back), lost (the machine went away, or how it
    ended is not known). `detail` is a sentence for people.
    """

    code: int | None
    signal: int | None
    reason: str
    detail: str = ""


@dataclass(frozen=True)
class RunState:
    """`state`: absent, running, ended or lost. `log_bytes` is the length of its output so far."""

    state: str
    exit: Exit | None = None
    log_bytes: int = 0
    started_at: float | None = None
    ended_at: float | None = None


@dataclass(frozen=True)
class Divergence:
    """Where two runs first differ. `relative` is the relative L2 difference of that tensor."""

    step: int
    stage: str
    tensor: str
    relative: float | None
    detail: str


@dataclass(frozen=True)
class Verdict:
    """The outcome of comparing two recorded runs.

    `verdict`: IDENTICAL, EQUIVALENT, DIVERGENT, UNSTABLE or NOT COMPARED. `cause` is a sentence or
    None; `confirmed` only by a counterfactual run. `compared` counts the tensors that were compared.
    """

    verdict: str
    divergence: Divergence | None = None
    cause: str | None = None
    confirmed: bool = False
    compared: int = 0
    steps: int = 0
    detail: str = ""
