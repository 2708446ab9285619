"""The predicted and the measured effect of a fix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orchestrator.stalls.bottleneck import ahead, node_seconds, of_arrays
from orchestrator.stalls.differential import Differential, Timing, ratio, timings_of

_OF_STEPS = ("more cores", "fewer threads")
"""Fixes that can also help steps that do not wait for input."""

HELPS = 1.05
"""Minimum speed-up of a fix that counts as helping."""

_THROUGH = ("batch", "padded_batch", "prefetch", "with_options", "repeat")


@dataclass(frozen=True)
class Tried:
    """One fix. `predicted` and `achieved`: speed-up of a step; None if not predicted, or not measured.
    `noise`: of `achieved`.

    `parity`: order (the same batches in the same order), examples (the same examples in another order), none,
    or None if unknown, with the reason in `why`. `chance`: there was no stall that it could remove, so a
    speed-up is by chance.
    """

    name: str
    predicted: float | None
    achieved: float | None
    noise: float = 0.0
    parity: str | None = None
    why: str = ""
    batches: int = 0
    edits: Sequence[Mapping[str, Any]] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    chance: bool = False

    @property
    def helped(self) -> bool:
        gained = self.achieved is not None and self.achieved >= HELPS and self.achieved - 1 > self.noise
        return gained and not self.chance

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "predicted": _short(self.predicted),
            "achieved": _short(self.achieved),
            "noise": _short(self.noise),
            "helped": self.helped,
            "chance": self.chance,
            "parity": {"same": self.parity, "batches": self.batches, "why": self.why},
            "edits": [dict(edit) for edit in self.edits],
            **self.facts,
        }


def _short(value: float | None) -> float | None:
    return None if value is None or value == float("inf") else round(value, 3)


def judge_fixes(differential: Differential, result: Mapping[str, Any]) -> list[Tried]:
    """Return every fix that a scratch run tried, best first."""
    timings = timings_of(result)
    base = timings.get("base")
    fixes = result.get("fixes") or ()
    if base is None:
        return []
    judged = [_judged(differential, base, timings.get(f"fix {fix['name']}"), fix, result) for fix in fixes]
    return sorted(judged, key=lambda each: -(each.achieved or 0.0))


def untried_fixes(result: Mapping[str, Any]) -> str | None:
    """Return why a scratch run tried no fix; None if it tried one, or none was requested."""
    if result.get("fixes") != []:
        return None
    calls = result.get("calls") or ()
    if result.get("stalls") is False:
        return "steps do not wait for their input, and no fix of it could give anything"
    source = result.get("source") or {}
    if source.get("source") == "PyDataset":
        return f"the batches come from {source.get('source_name')}, a PyDataset, whose code stays as it is"
    if source.get("source") == "generator":
        return "the batches come from a Python generator that `fit` was given, which gives one after another"
    if not any(call.get("site") for call in calls):
        if of_arrays(calls):
            return (
                "Keras makes the batches of arrays by itself; the script has no pipeline of its own to change"
            )
        return "the pipeline is made in a library, not by calls of the script"
    if any(call.get("call") == "from_generator" for call in calls):
        return (
            "the examples come from a Python generator, which gives one after another, and not the same in "
            "every pass"
        )
    return (
        "its calls are parallel, work ahead and are cached already, or cannot be (a cache needs a "
        "dataset that tells its size, as by assert_cardinality), and no data can be staged"
    )


def winner(all_tried: Sequence[Tried]) -> Tried | None:
    """Return the simplest of the fixes that are nearly the best: one that keeps the order of batches if
    possible.
    """
    for kept in (("order",), ("order", None), ("order", None, "examples")):
        helped = [each for each in all_tried if each.helped and each.parity in kept]
        if helped:
            most = max(each.achieved or 0.0 for each in helped)
            near = [each for each in helped if (each.achieved or 0.0) >= 0.95 * most]
            return min(near, key=lambda each: len(each.edits))
    return None


def _judged(
    differential: Differential,
    base: Timing,
    timing: Timing | None,
    fix: Mapping[str, Any],
    result: Mapping[str, Any],
) -> Tried:
    parity = fix.get("parity") or {}
    achieved, noise = ratio(base, timing) if timing else (None, 0.0)
    seconds = predicted_seconds(differential, base, fix, cold=result.get("base") == "cold")
    facts = {
        key: fix[key]
        for key in ("elements", "bytes", "files", "folder", "cores", "parallel", "rate")
        if key in fix
    }
    return Tried(
        name=str(fix["name"]),
        predicted=max(1.0, base.seconds / seconds) if seconds else None,
        achieved=achieved,
        noise=noise,
        parity=parity.get("same"),
        why=str(parity.get("why") or ""),
        batches=int(parity.get("batches") or 0),
        edits=fix.get("edits") or (),
        facts=facts,
        chance=not differential.stall.significant and str(fix["name"]) not in _OF_STEPS,
    )


def predicted_seconds(
    differential: Differential, base: Timing, fix: Mapping[str, Any], *, cold: bool
) -> float | None:
    """Return the seconds of a step with the fix; None if the measurements do not allow a prediction.

    A pipeline that prefetches is as fast as the slowest of three: the step, the pipeline alone, and the CPU
    time of both on the cores that other processes leave.
    """
    pull = differential.timings.get("pull cold" if cold else "pull")
    if pull is None:
        return None
    if not differential.stall.significant and str(fix["name"]) not in _OF_STEPS:
        return base.seconds
    rule = _RULES.get(str(fix["name"]))
    return rule(differential, base, pull, fix) if rule else None


def _crowded(differential: Differential, base: Timing) -> float:
    """Return the seconds of a step if the CPU is the limit."""
    return base.cpu * _stretch(differential, base, differential.cores) / differential.cores


def _stretch(differential: Differential, timing: Timing, threads: int) -> float:
    """Return the factor by which this many threads are slower because other processes use the cores too."""
    return max(1.0, (threads + timing.others) / differential.cores)


def _prefetch(differential: Differential, base: Timing, pull: Timing, fix: Mapping[str, Any]) -> float:
    del fix
    return max(differential.ideal, pull.seconds, _crowded(differential, base))


def _parallel_map(
    differential: Differential, base: Timing, pull: Timing, fix: Mapping[str, Any]
) -> float | None:
    parts = None if _reading(pull) else _split(differential, pull, fix)
    return parts and max(differential.ideal + parts[1], parts[0], _crowded(differential, base))


def _both(differential: Differential, base: Timing, pull: Timing, fix: Mapping[str, Any]) -> float | None:
    parts = None if _reading(pull) else _split(differential, pull, fix)
    return parts and max(differential.ideal, parts[1], parts[0], _crowded(differential, base))


def _reading(pull: Timing) -> bool:
    """Return whether the pipeline reads from disk: what a disk delivers to several readers cannot be
    derived from one.
    """
    return pull.device > 0


def _split(differential: Differential, pull: Timing, fix: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return (seconds of the mapping once it is parallel, seconds of everything else) per batch.

    None if there are no statistics, or for Python code: its threads take turns, and the share of that cannot
    be measured from outside.
    """
    mapping = node_seconds(differential, ("map",))
    if mapping is None or any(
        "PyFunc" in name for call in differential.calls for name in call.get("operations") or ()
    ):
        return None
    mapping = min(mapping, pull.seconds)
    asked = int(fix.get("parallel") or -1)
    rest = max(0.0, pull.seconds - mapping)
    return mapping / (asked if asked > 0 else differential.cores), min(rest, pull.cpu) if pull.cpu else rest


def _cache(differential: Differential, base: Timing, pull: Timing, fix: Mapping[str, Any]) -> float | None:
    """Return the seconds with batches held in memory; None if they are prepared after the place of the
    cache.
    """
    del base, pull
    above = list(fix.get("above") or ())
    cached = differential.timings.get("cached")
    if cached is None or any(name not in _THROUGH for name in above):
        return None
    batching = node_seconds(differential, ("batch", "padded_batch")) if "batch" in above else 0.0
    return cached.seconds + (0.0 if "prefetch" in above else batching or 0.0)


def _staging(differential: Differential, base: Timing, pull: Timing, fix: Mapping[str, Any]) -> float:
    del base
    reading = pull.device / float(fix["rate"]) if fix.get("rate") else 0.0
    warm = differential.timings["warm"].seconds
    return max(warm, reading) if ahead(differential) else warm + reading


_RULES = {
    "prefetch": _prefetch,
    "parallel map": _parallel_map,
    "parallel map + prefetch": _both,
    "cache": _cache,
    "staging": _staging,
}
