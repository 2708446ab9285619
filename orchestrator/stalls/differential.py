"""Compute from windows of a scratch run how long a step waits for reading and for preparing its batch.

The method of DS-Analyzer (Mohan et al., VLDB 2021) for tf.data: the same training on one batch over and over
(synthetic), on batches held in memory (cached), and on its own pipeline with its files in the page cache
(warm) and not in it (cold). Differences between these are stalls, whichever cores they used. Kinds of windows
alternate, and are compared round by round, so that a busy computer slows all of them alike.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orchestrator.model.counted import counted

FORMAT = 1

LEAST_SHARE = 0.03
"""Share of a step below which a difference is never significant."""

WARM_READS = 0.3
"""If a warm window reads more than this share of the cold windows' disk reads, its files were not in
memory.
"""


AT_MOST = 1.5
"""Maximum of a stall, relative to the pipeline alone, which is slower while a step runs beside it."""

BUSY = 0.25
"""Share of the cores that other processes must use for the computer to count as busy."""


@dataclass(frozen=True)
class Timing:
    """One kind of window: seconds of one batch in each round; `cpu` and `waited` (for a core) per batch,
    medians.

    Per batch: `device`, `asked` and `network` in bytes, `calls` of reading, `faults`. `first`: seconds until
    the first batch was trained on. `others`: cores that other processes used meanwhile; `busy`: whether these
    are many. `connected`: share of the windows in which the process had a TCP connection.
    """

    rounds: tuple[float, ...]
    cpu: float = 0.0
    waited: float = 0.0
    device: float = 0.0
    asked: float = 0.0
    network: float = 0.0
    calls: float = 0.0
    faults: float = 0.0
    first: float = 0.0
    others: float = 0.0
    threads: int = 0
    busy: bool = False
    connected: float = 0.0

    @property
    def seconds(self) -> float:
        """Return the median, or that of the quicker half if other processes used the cores."""
        return statistics.median(self.undisturbed if self.busy else self.rounds)

    @property
    def undisturbed(self) -> Sequence[float]:
        """Return the quicker half of the rounds."""
        return sorted(self.rounds)[: (len(self.rounds) + 1) // 2]

    @property
    def spread(self) -> float:
        """Return half the range of the quicker half of the rounds."""
        return (self.undisturbed[-1] - self.undisturbed[0]) / 2


@dataclass(frozen=True)
class Gap:
    """The difference between two kinds of windows: `seconds` and `noise` per step, and the `share` of the
    slower one.
    """

    seconds: float
    noise: float
    share: float

    @property
    def significant(self) -> bool:
        return self.seconds > self.noise


@dataclass(frozen=True)
class Differential:
    """What the input of one training costs. Seconds are per batch; `batch` is the number of examples in it.

    `fetch`: cold compared with warm, None if nothing was read from a disk; `prep`: warm compared with a step
    that never waits; `stall`: their total. `cold`: whether the real training finds its files cold. `source`:
    what Keras built the pipeline from, see runtime.steps.inputs.source_of.
    """

    timings: Mapping[str, Timing]
    fetch: Gap | None
    prep: Gap
    stall: Gap
    cold: bool
    cores: int
    batch: int | None = None
    batch_bytes: int = 0
    files: int = 0
    file_bytes: int = 0
    calls: Sequence[Mapping[str, Any]] = ()
    nodes: Sequence[Mapping[str, Any]] = ()
    node_batches: int = 0
    notes: Sequence[str] = ()
    source: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ideal(self) -> float:
        """Return the seconds of a step that never waits for its batch."""
        return quickest(self.timings).seconds

    @property
    def actual(self) -> Timing:
        return self.timings["cold" if self.cold else "warm"]

    @property
    def pulling(self) -> Timing:
        """Return the seconds per batch of the pipeline alone, without training."""
        return self.timings["pull cold" if self.cold else "pull"]

    def share(self, gap: Gap) -> float:
        """Return the fraction of the step that a gap takes."""
        return min(1.0, max(0.0, gap.seconds / self.actual.seconds)) if self.actual.seconds > 0 else 0.0

    def rate(self, mode: str) -> float | None:
        """Return examples per second (batches if their size is not fixed)."""
        found = self.timings.get(mode)
        return (self.batch or 1) / found.seconds if found and found.seconds > 0 else None

    @property
    def storage_bytes(self) -> float | None:
        """Return the bytes per second that the disk delivered without training."""
        cold = self.timings.get("pull cold")
        return cold.device / cold.seconds if cold and cold.device and cold.seconds else None

    def as_json(self) -> dict[str, Any]:
        """Return the published object, without its `schema`."""
        return {
            "step": {mode: round(timing.seconds, 6) for mode, timing in self.timings.items()},
            "ideal_step": round(self.ideal, 6),
            "fetch_stall": gap_json(self.fetch),
            "prep_stall": gap_json(self.prep),
            "stall": gap_json(self.stall),
            "files_cold": self.cold,
            "rates": {
                "accelerator": _rounded(self.rate("synthetic")),
                "preparation": _rounded(self.rate("pull")),
                "storage": _rounded(self.rate("pull cold")) if self.fetch else None,
                "storage_bytes": _rounded(self.storage_bytes),
                "unit": "examples/s" if self.batch else "batches/s",
            },
            "first_batch": round(self.timings["warm"].first, 6),
            "cores": self.cores,
            "batch": self.batch,
            "batch_bytes": self.batch_bytes,
            "files": self.files,
            "file_bytes": self.file_bytes,
            "notes": list(self.notes),
            **self.facts,
        }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def gap_json(gap: Gap | None) -> dict[str, Any] | None:
    if gap is None:
        return None
    return {
        "seconds": round(gap.seconds, 6),
        "share": round(max(0.0, gap.share), 4),
        "noise": round(gap.noise, 6) if math.isfinite(gap.noise) else None,
        "significant": gap.significant,
    }


def differential(result: Mapping[str, Any]) -> Differential | None:
    """Parse what a scratch run wrote; None if a required kind of window has no step."""
    timings = timings_of(result)
    if any(mode not in timings for mode in ("synthetic", "warm")):
        return None
    ideal, warm = quickest(timings), timings["warm"]
    fetch = _fetch(timings)
    cold = fetch is not None and fetch.significant
    pipeline = result.get("pipeline") or {}
    return Differential(
        timings=timings,
        fetch=fetch,
        prep=_possible(gap(warm, ideal), warm, timings.get("pull")),
        stall=_possible(
            gap(timings["cold" if cold else "warm"], ideal),
            timings["cold" if cold else "warm"],
            timings.get("pull cold" if cold else "pull"),
        ),
        cold=cold,
        cores=int(result.get("cores") or 1),
        batch=result.get("batch"),
        batch_bytes=int(result.get("batch_bytes") or 0),
        files=int(result.get("files") or 0),
        file_bytes=int(result.get("file_bytes") or 0),
        calls=result.get("calls") or (),
        nodes=pipeline.get("nodes") or (),
        node_batches=int(pipeline.get("batches") or 0),
        notes=_notes(result, warm, int(result.get("cores") or 1)),
        source=result.get("source") or {},
        facts={
            key: result.get(key)
            for key in ("loop", "tensorflow", "gpus", "steps", "steps_per_call", "cardinality")
        },
    )


def _possible(found: Gap, slower: Timing, pull: Timing | None) -> Gap:
    """Limit the delay to the time that a batch takes plus their mutual cost; the rest is noise of the
    computer.
    """
    most = AT_MOST * pull.seconds if pull else math.inf
    if found.seconds <= most or slower.seconds <= 0:
        return found
    return Gap(most, found.noise, most / slower.seconds)


def quickest(timings: Mapping[str, Timing]) -> Timing:
    """Return the quicker of the two kinds of steps that never wait for input."""
    found = [timings[mode] for mode in ("synthetic", "cached") if mode in timings]
    return min(found, key=lambda timing: timing.seconds)


def _notes(result: Mapping[str, Any], warm: Timing, cores: int) -> list[str]:
    told = [str(note) for note in result.get("notes") or ()]
    if warm.others >= BUSY * cores:
        told.append(
            f"Other programs kept {warm.others:.1f} of {counted(cores, 'core')} busy meanwhile: times "
            "are longer than on a quiet computer, and predictions that count cores are rough."
        )
    return told


def _fetch(timings: Mapping[str, Timing]) -> Gap | None:
    cold = timings.get("cold")
    if cold is None or cold.device <= 0:
        return None
    return gap(cold, timings["warm"])


def timings_of(result: Mapping[str, Any]) -> dict[str, Timing]:
    """Return the windows by mode, without those that have no step."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for line in result.get("windows") or ():
        if line.get("steps") and line.get("wall"):
            found.setdefault(str(line["mode"]), []).append(line)
    per_call = int(result.get("steps_per_call") or 1)
    return {mode: _timing(mode, lines, per_call, result) for mode, lines in found.items()}


def _timing(
    mode: str, lines: Sequence[Mapping[str, Any]], per_call: int, result: Mapping[str, Any]
) -> Timing:
    each = 1 if mode.startswith("pull") else per_call
    ordered = sorted(lines, key=lambda line: line.get("round", 0))

    def middle(key: str) -> float:
        values = [float(line.get(key, 0.0)) / (line["steps"] * each) for line in ordered]
        return float(statistics.median(values))

    others = [max(0.0, line.get("machine", 0.0) - line.get("cpu", 0.0)) / line["wall"] for line in ordered]
    return Timing(
        rounds=tuple(line["wall"] / (line["steps"] * each) for line in ordered),
        cpu=middle("cpu"),
        waited=middle("waited"),
        device=middle("device"),
        asked=middle("asked"),
        network=middle("network"),
        calls=middle("calls"),
        faults=middle("faults"),
        first=statistics.median(float(line.get("first", 0.0)) for line in ordered),
        others=statistics.median(others),
        threads=max(int(line.get("threads", 0)) for line in ordered),
        connected=statistics.fmean(bool(line.get("connections")) for line in ordered),
        busy=statistics.median(others) >= BUSY * int(result.get("cores") or 1),
    )


def gap(slower: Timing, faster: Timing) -> Gap:
    """Return how much longer a step takes, compared round by round; `noise`: the uncertainty of that.

    The noise is twice the standard error of the median difference, from the median deviation, so that a
    single disturbed round counts little. If the computer was busy all the time, the quicker halves are
    compared, and the noise is their spread. It is never below LEAST_SHARE of a step.
    """
    if min(len(slower.rounds), len(faster.rounds)) < 2:
        middle, noise = slower.seconds - faster.seconds, math.inf
    elif slower.busy or faster.busy:
        middle = slower.seconds - faster.seconds
        noise = math.hypot(slower.spread, faster.spread)
    else:
        differences = [one - other for one, other in zip(slower.rounds, faster.rounds, strict=False)]
        middle = statistics.median(differences)
        noise = _error(differences)
    whole = slower.seconds
    return Gap(middle, max(noise, LEAST_SHARE * whole), middle / whole if whole > 0 else 0.0)


def _error(values: Sequence[float]) -> float:
    """Return twice the standard error of the median."""
    middle = statistics.median(values)
    deviation = statistics.median(abs(each - middle) for each in values)
    return 2 * 1.4826 * 1.2533 * deviation / math.sqrt(len(values))


def ratio(slower: Timing, faster: Timing) -> tuple[float, float]:
    """Return (speed-up, its noise): from the median of the rounds, or from their quicker halves."""
    if min(len(slower.rounds), len(faster.rounds)) < 2:
        return slower.seconds / faster.seconds, math.inf
    if slower.busy or faster.busy:
        middle = slower.seconds / faster.seconds
        noise = middle * math.hypot(slower.spread / slower.seconds, faster.spread / faster.seconds)
        return middle, max(noise, LEAST_SHARE)
    ratios = [one / other for one, other in zip(slower.rounds, faster.rounds, strict=False)]
    middle = statistics.median(ratios)
    return middle, max(_error(ratios), LEAST_SHARE)
