"""The output of `orch rerun`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.model import RunRecord
from orchestrator.model.counted import counted
from orchestrator.model.outcomes import Conclusion
from orchestrator.model.plain import plain
from orchestrator.report.outputs import difference_words
from orchestrator.report.run import parity_line, summary
from orchestrator.report.units import money
from orchestrator.runs.outputs import ComparedOutput, Sameness

_NAMED = 5


def rerun_text(first: RunRecord, second: RunRecord, found: Mapping[str, Any]) -> str:
    """Return the summary of the new run, then the comparison of both. `found`: the JSON of the verb."""
    by_records, is_open = found["verdict"].get("recorded"), found["conclusion"] == Conclusion.NOT_COMPARED
    facts = [
        ("outputs", _outputs(found["outputs"])),
        *(("", each) for each in _differing(found["outputs"])),
        ("metrics", _metrics(first, found["metrics"])),
        ("tensors", "" if by_records else parity_line(found["verdict"])),
        ("records", found["verdict"]["detail"] if by_records and is_open else ""),
        ("cost", f"{_cost(first)} then, {_cost(second)} now"),
    ]
    lines = [f"  {name.ljust(7)}  {text}" for name, text in facts if text]
    head = f"{first.run_id} and {second.run_id}: {_HEADS[found['conclusion']]}"
    compare = f"Next: orch report {first.run_id} {second.run_id}    # shows both, side by side"
    return "\n".join([summary(second), "", head, *lines, compare])


_HEADS = {
    Conclusion.IDENTICAL: "the same",
    Conclusion.DIVERGENT: "not the same",
    Conclusion.NOT_COMPARED: "not compared",
}


def _other(outputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for each in outputs if not Sameness(each["found"]).same]


def _differing(outputs: list[dict[str, Any]]) -> list[str]:
    first = [ComparedOutput(**each) for each in _other(outputs)[:_NAMED]]
    return [plain(f"{each.path}: {difference_words(each)}") for each in first]


def _outputs(outputs: list[dict[str, Any]]) -> str:
    if not outputs:
        return "none"
    counts = [sum(each["found"] == state for each in outputs) for state in (Sameness.BYTES, Sameness.CONTENT)]
    text = f"{counts[0]} of {counted(len(outputs), 'file')} bit for bit the same"
    if counts[1]:
        text += f"; {counted(counts[1], 'archive')} with the same content, saved at another time"
    other = len(_other(outputs))
    return f"{text}; {other} not, the first:" if other else text


def _metrics(first: RunRecord, differing: list[dict[str, Any]]) -> str:
    if not differing:
        return f"{counted(len(first.metrics), 'number')} the same" if first.metrics else ""
    one = differing[0]
    more = f" ({len(differing) - 1} more differ)" if len(differing) > 1 else ""
    return f"{plain(one['name'])} is the first that differs: {one['first']} then, {one['second']} now{more}"


def _cost(record: RunRecord) -> str:
    usd = (record.cost or {}).get("run_usd", (record.cost or {}).get("usd"))
    return "unknown" if usd is None else money(usd)
