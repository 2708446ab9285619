"""The profile of a run: where its time went, what one change would gain, which machine fits."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrator.model.counted import counted
from orchestrator.report.units import columns_table, duration, money, share, size, wrapped

_WAITED = 0.1
"""Fewer cores that threads waited for are not reported."""
_MORE = 2
"""Changes that are listed after the first."""
START_UP = "start-up"
_SPEED = "steps/s (median step)"


def where_time_went(profile: Mapping[str, Any], run_id: str = "RUN", path: str = "PROFILE.yaml") -> str:
    """The screen after a run. `profile`: as in run.json; `path`: of the file that asked for its machine."""
    lines = [io_table(profile)]
    labelled = [
        *_speed(profile),
        *_said(profile),
        *_one_change(profile),
        *_machine(profile, run_id, path),
        *_unknown(profile),
    ]
    width = max((len(label) for label, _ in labelled), default=0)
    for label, text in labelled:
        lines += wrapped(f"  {label.ljust(width)}  ", text)
    return "\n".join(lines)


def measures(profile: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the columns of `io_table` as names and values; unknown ones are left out."""
    return [(name, text) for name, text in _columns(profile) if text != "unknown"]


def time_notes(profile: Mapping[str, Any]) -> list[Row]:
    """Return notes about the time as (label, text); a further line of the same label has an empty one."""
    return [*_speed(profile), *_said(profile), *_one_change(profile), *_unknown(profile)]


def machine_notes(profile: Mapping[str, Any], run_id: str, path: str) -> list[Row]:
    """Return notes, like `time_notes`, about the machine that would have been right."""
    return list(_machine(profile, run_id, path))


def like_text(profile: object, run_id: str | None, overrides: Sequence[str], reasons: Sequence[str]) -> str:
    """What `orch plan --like RUN` adds: what the run needed, and the command for such a machine."""
    if run_id is None:
        return ""
    sets = " ".join(f"--set {shlex.quote(each)}" for each in overrides)
    return f"\n{run_id} needed {_and(reasons)}.\nNext: orch up {shlex.quote(str(profile))} {sets}"


def io_table(profile: Mapping[str, Any]) -> str:
    """The small table of where the time went; what was not observed of steps is "unknown"."""
    columns = _columns(profile)
    of_steps = ("steps", _SPEED, "waiting for input") if profile.get("steps") is not None else ()
    always = (*of_steps, "read", "peak memory", "limited by")
    shown = [(name, text) for name, text in columns if name in always or text != "unknown"]
    because = " ".join(filter(None, (startup_sentence(profile), str(profile.get("because") or ""))))
    return "\n".join([columns_table(shown, indent="  "), *(wrapped("  ", because) if because else [])])


def _columns(profile: Mapping[str, Any]) -> list[Row]:
    speed = profile.get("steps_per_s")
    return [
        ("steps", "unknown" if profile.get("steps") is None else f"{profile['steps']:,}"),
        (_SPEED, "unknown" if speed is None else f"{speed:.1f}"),
        ("waiting for input", share(profile.get("input_wait"))),
        ("cores busy", _cores(profile)),
        ("cores wanted", _wanted(profile)),
        ("read", size(profile.get("bytes_read"))),
        ("from disk", _from_disk(profile)),
        ("peak memory", size(profile.get("peak_memory"))),
        ("GPU busy", share(profile.get("gpu_utilisation"))),
        ("limited by", limit_word(profile)),
    ]


def limit_word(profile: Mapping[str, Any]) -> str:
    """Return what limited the run, in a word or two: start-up, if that was most of it."""
    return START_UP if startup_share(profile) else profile.get("limited_by") or _not_told(profile)


def startup_share(profile: Mapping[str, Any]) -> str:
    """Return the share of the run that was start-up, in percent, if that was most of it; else ""."""
    before, wall = profile.get("startup_s"), profile.get("wall_s")
    if not isinstance(before, int | float) or not isinstance(wall, int | float) or wall <= 0:
        return ""
    return share(min(1.0, before / wall)) if profile.get("mostly_startup") is True else ""


def startup_sentence(profile: Mapping[str, Any]) -> str:
    """Return what start-up took, and what limited the steps; "" unless it was most of the run."""
    told, limit = startup_share(profile), profile.get("limited_by")
    of_steps = f" The steps were limited by {limit}." if limit and limit != "nothing" else ""
    return f"{told} of the run was imports and set-up, before its first step.{of_steps}" if told else ""


def _not_told(profile: Mapping[str, Any]) -> str:
    return "too short to tell" if profile.get("short") else "unknown"


def _cores(profile: Mapping[str, Any]) -> str:
    busy, cores = profile.get("cpu_utilisation"), profile.get("cores")
    return "unknown" if busy is None or not cores else f"{busy * cores:.1f} of {cores:g}"


def _wanted(profile: Mapping[str, Any]) -> str:
    """Cores that were busy or waited for; "unknown" if threads never waited for one."""
    busy, cores, waited = (profile.get(key) for key in ("cpu_utilisation", "cores", "cpu_waiting"))
    if busy is None or not cores or waited is None or waited < _WAITED:
        return "unknown"
    return f"{busy * cores + waited:.1f}"


def _from_disk(profile: Mapping[str, Any]) -> str:
    hit = profile.get("cache_hit")
    return "unknown" if hit is None else share(1 - hit)


Row = tuple[str, str]


def _speed(profile: Mapping[str, Any]) -> Iterator[Row]:
    """Explain the steps per second next to the total time, which includes more."""
    steps, seconds, wall = (profile.get(key) for key in ("steps", "train_s", "wall_s"))
    if profile.get("steps_per_s") is None or not steps or not seconds or not wall:
        return
    yield (
        "steps/s",
        "From the median time of a step, without start-up, validation and pauses. In total "
        f"{counted(steps, 'step')} in {duration(wall)}, {duration(seconds)} of it between the first and the "
        "last step.",
    )


def _said(profile: Mapping[str, Any]) -> Iterator[Row]:
    for number, text in enumerate(profile.get("alarms") or ()):
        yield ("" if number else "warning"), str(text)


def _one_change(profile: Mapping[str, Any]) -> Iterator[Row]:
    found = profile.get("advice") or ()
    if not found:
        return
    first = found[0]
    yield "one change", f"{first['change']}."
    if startup_share(profile):
        yield "", "It changes the steps alone; most of this run was before them."
    if first["because"] != profile.get("because"):
        yield "", f"{first['because']}"
    yield "", _gain(first)
    if first.get("price"):
        yield "", f"Price: {first['price']}."
    yield "", f"{first['parity']}"
    if first.get("trial"):
        yield "", "To verify: orch profile --try"
    for other in found[1 : 1 + _MORE]:
        yield "or", f"{other['change']}{_times(other)}."


def _gain(advice: Mapping[str, Any]) -> str:
    if not advice.get("gain"):
        return f"Gain: {advice['formula']}."
    now, after = advice["step_now_s"], advice["step_after_s"]
    return (
        f"Predicted: {advice['gain']:.2f}× as fast, {now * 1000:.3g} → {after * 1000:.3g} ms a step: "
        f"{advice['formula']}."
    )


def _times(advice: Mapping[str, Any]) -> str:
    return f" (predicted: {advice['gain']:.2f}× as fast)" if advice.get("gain") else ""


def _machine(profile: Mapping[str, Any], run_id: str, path: str) -> Iterator[Row]:
    found = profile.get("right_size")
    if not found:
        return
    yield "machine", _verdict(found)
    faster = found.get("faster")
    if faster:
        yield "", f"With enough cores: {_offer(faster)}, {_cost(faster)}, at the predicted speed."
    yield "", f"A run like this needs {_and(found['reasons'])}."
    yield "", "This assumes equally fast cores, and GPUs as fast as their data sheets say."
    yield "", f"See: orch plan {path} --like {run_id}"


def _verdict(found: Mapping[str, Any]) -> str:
    keep, change = found["keep"], found["change"]
    if change is None:
        return "No machine in the catalog would have run it as fast."
    if found["better"]:
        return (
            f"{_offer(change)} would have been enough: {_longer(change)}, {_cost(change)} instead of "
            f"{_cost(keep)} on {_here(keep)}."
        )
    if keep["price_usd_hour"]:
        return (
            f"Keep {_here(keep)}, {_cost(keep)}: the cheapest that keeps up, {_offer(change)}, costs "
            f"{_cost(change)}."
        )
    return f"On a cloud, the cheapest that keeps up is {_offer(change)}: {_longer(change)}, {_cost(change)}."


def _and(words: Sequence[str]) -> str:
    return ", ".join(words[:-1]) + " and " + words[-1] if len(words) > 1 else "".join(words)


def _offer(offer: Mapping[str, Any]) -> str:
    return (
        f"{offer['cloud']} {offer['instance_type']} ({offer['region']}, {money(offer['price_usd_hour'])}/h)"
    )


def _here(keep: Mapping[str, Any]) -> str:
    return f"{keep['instance_type'] or 'this computer'} ({money(keep['price_usd_hour'])}/h)"


def _longer(change: Mapping[str, Any]) -> str:
    worst = change["time_at_worst"] - 1
    return f"at most {worst * 100:.0f}% longer" if worst > 0 else "as fast"


def _cost(found: Mapping[str, Any]) -> str:
    for key, one, many in (("usd_epoch", "an epoch", "1,000 epochs"), ("usd_1000_steps", "1,000 steps", "")):
        dollars = found.get(key)
        if dollars is None:
            continue
        if many and dollars < 0.01:
            return f"{money(dollars * 1000)} for {many}"
        return f"{money(dollars)} {'' if many else 'for '}{one}"
    return f"{money(found['price_usd_hour'])}/h"


def _unknown(profile: Mapping[str, Any]) -> Iterator[Row]:
    for number, text in enumerate(profile.get("unknown") or ()):
        yield ("" if number else "not known"), str(text)
