"""The output of `orch profile`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from orchestrator.model.counted import counted
from orchestrator.report.units import size, table, wrapped
from orchestrator.report.where import where_time_went

MOST_FILES = 10


def profile_text(profile: Mapping[str, Any]) -> str:
    """The output of `orch profile`, from the value that --json prints."""
    parts = [f"profile {profile['run_id']}: {' '.join(profile['command'])}"]
    found = profile["differential"]
    if found:
        parts.append(_stalls(found, profile["bottleneck"], helped=bool(profile["best"])))
    else:
        parts.append("\n".join(wrapped("  ", profile["why"])))
        if profile.get("last_lines"):
            parts.append("\n".join(f"    {line}" for line in profile["last_lines"]))
        if profile.get("system"):
            parts.append(where_time_went(profile["system"]))
    if profile["tried"]:
        parts.append(_tried(profile))
    elif profile["untried"]:
        parts.append("\n".join(wrapped("  ", f"tried: nothing, because {profile['untried']}.")))
    if profile["files"]:
        parts.append(_files(profile["files"]))
    if profile.get("trace"):
        parts.append(f"  tf.profiler: xprof --logdir {profile['trace']}    # pip install xprof")
    notes = [line for note in profile["notes"] for line in wrapped("  note: ", note)]
    return "\n\n".join([*parts, *(["\n".join(notes)] if notes else [])])


def _stalls(found: Mapping[str, Any], bottleneck: Mapping[str, Any], *, helped: bool) -> str:
    step = found["step"]
    actual = step["cold" if found["files_cold"] else "warm"]
    rows = [
        ("bottleneck", f"{bottleneck['kind']}: {bottleneck['words']}"),
        ("step", _step(actual, found)),
        (
            "fetch stall",
            _gap(found["fetch_stall"], actual)
            if found["fetch_stall"]
            else "none: nothing was read from a disk",
        ),
        ("prep stall", _gap(found["prep_stall"], actual)),
        ("rates", _rates(found["rates"])),
        ("first batch", f"{found['first_batch']:.2f} s after the start of an epoch"),
        ("read from", f"{counted(found['files'], 'file')}, {size(found['file_bytes'])}"),
    ]
    rows += [("also", finding["words"]) for finding in bottleneck["findings"]]
    if bottleneck.get("remedy") and not helped:
        rows.append(("what to do", f"{bottleneck['remedy'][0].upper()}{bottleneck['remedy'][1:]}"))
    width = max(len(name) for name, _ in rows)
    return "\n".join(line for name, text in rows for line in wrapped(f"  {name.ljust(width)}  ", text))


def _step(actual: float, found: Mapping[str, Any]) -> str:
    if not found["stall"]["significant"]:
        return f"{_ms(actual)}; no wait for its batch"
    return f"{_ms(actual)}; {_ms(found['ideal_step'])} without waiting for its batch"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms"


def _gap(gap: Mapping[str, Any], step: float) -> str:
    """A stall as a share of the measured step. Fetch and prep stall together are at most the whole step."""
    if not gap["significant"]:
        noise = "unknown" if gap["noise"] is None else _ms(gap["noise"])
        return f"not significant ({_ms(max(0.0, gap['seconds']))}, noise {noise})"
    part = min(1.0, gap["seconds"] / step) if step else 0.0
    return f"{part:.0%} of a step ({_ms(gap['seconds'])}, noise {_ms(gap['noise'])})"


def _rates(rates: Mapping[str, Any]) -> str:
    shown = [
        f"{name} {rates[name]:,.0f}" for name in ("accelerator", "preparation", "storage") if rates[name]
    ]
    bytes_ = f" ({size(rates['storage_bytes'])}/s from the disk)" if rates["storage_bytes"] else ""
    return f"{', '.join(shown)} {rates['unit']}{bytes_}"


def _tried(profile: Mapping[str, Any]) -> str:
    rows = [["tried", "predicted", "achieved", "batches"]]
    rows += [
        [each["name"], _times(each["predicted"]) or "-", _achieved(each), _parity(each["parity"])]
        for each in profile["tried"]
    ]
    text = table(rows, indent="  ")
    best = next((each for each in profile["tried"] if each["name"] == profile["best"]), None)
    if best is None:
        return f"{text}\n  None of them helped."
    if profile["change"]:
        shown = "\n".join(f"    {line}" for line in profile["change"].splitlines())
        return f"{text}\n\n  Change for {best['name']} ({_times(best['achieved'])} as fast):\n\n{shown}"
    return f"{text}\n\n  {best['name']}, {_times(best['achieved'])} as fast: {_deed(best)}"


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}x"


def _achieved(each: Mapping[str, Any]) -> str:
    if each["achieved"] is None:
        return "not measured"
    if each["helped"]:
        return _times(each["achieved"])
    return _times(each["achieved"]) + (": no stall to remove" if each["chance"] else ": did not help")


def _parity(parity: Mapping[str, Any]) -> str:
    said = {
        "order": f"the same {parity['batches']}, in the same order",
        "examples": "the same examples in another order",
        "none": "DIFFERENT batches",
    }
    return said.get(parity["same"]) or f"not compared: {parity['why']}"


def _deed(best: Mapping[str, Any]) -> str:
    if best["name"] == "staging":
        data = counted(best["files"], "file")
        return f"copy {data} from {best['folder']} to a local disk and read them there."
    if best["name"] == "more cores":
        return f"give it {counted(best['cores'], 'core')}."
    edits = "; ".join(
        f"{edit['file']}:{edit['line']}: {edit.get('keyword') or edit.get('after') or edit.get('before')}"
        for edit in best["edits"]
    )
    return edits or "as above."


def _files(files: Sequence[Mapping[str, Any]]) -> str:
    many = len(files) > MOST_FILES
    files = _folders(files) if many else files
    rows = [["folder" if many else "path", "opens", "reads", "bytes", "in reads"]]
    rows += [
        [
            each["path"],
            f"{each['opens']:,}",
            f"{each['reads']:,}",
            size(each["bytes"]),
            f"{each['seconds']:.2f} s",
        ]
        for each in files[:MOST_FILES]
    ]
    more = len(files) - MOST_FILES
    left = f"\n  and {counted(more, 'more folder')}" if more > 0 else ""
    each = "\n  --json lists each file" if many else ""
    return table(rows, indent="  ") + left + each


def _folders(files: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Sum the reads per folder, largest first."""
    found: dict[str, dict[str, Any]] = {}
    for each in files:
        folder = str(PurePath(each["path"]).parent)
        one = found.setdefault(folder, {"files": 0, "opens": 0, "reads": 0, "bytes": 0, "seconds": 0.0})
        one["files"] += 1
        for key in ("opens", "reads", "bytes", "seconds"):
            one[key] += each[key]
    named = [{**one, "path": f"{folder} ({counted(one['files'], 'file')})"} for folder, one in found.items()]
    return sorted(named, key=lambda one: -one["bytes"])
