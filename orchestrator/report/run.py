"""The summary of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.model import (
    AttemptFacts,
    CancelReport,
    CostFacts,
    DataFacts,
    Exited,
    PullReport,
    RunRecord,
    StackFacts,
)
from orchestrator.model.counted import counted
from orchestrator.model.outcomes import Conclusion, ExitReason
from orchestrator.model.plain import moment, plain
from orchestrator.model.resume import Resumed
from orchestrator.model.workers import WorkersConclusion
from orchestrator.promotion.words import refusal_from, refusals_text
from orchestrator.report.models import model_lines
from orchestrator.report.promotion import gate_line
from orchestrator.report.units import duration, money, size
from orchestrator.report.where import where_time_went

_NAMED = 5


def summary(record: RunRecord) -> str:
    """The last screen of `orch train`: how the run ended, what was verified, its cost and its profile."""
    facts = [
        ("exit", _exit(record.exit)),
        *(("noticed", line) for line in _noticed(record)),
        ("memory", _memory(record)),
        ("attempt", _attempt(record.attempts)),
        *(("", line) for line in attempt_lines(record.attempts)),
        *(("" if number else "nodes", line) for number, line in enumerate(_nodes(record))),
        ("parity", parity_line(record.parity)),
        ("workers", _workers(record.parity)),
        ("resume", _resume_line(record.resume_proof)),
        ("stack", stack_line(record.stack)),
        ("code", _code(record)),
        ("data", data_line(record.data)),
        ("metrics", _metrics(record.metrics)),
        *(("" if number else "model", line) for number, line in enumerate(_model(record))),
        ("gate", _gate(record)),
        ("files", _files(record)),
        ("missing", _not_fetched(record)),
        *(("" if number else "unwritten", line) for number, line in enumerate(_unwritten(record))),
        ("cost", cost_line(record.cost)),
    ]
    width = max(len(name) for name, _ in facts)
    lines = [f"run {record.run_id}"]
    lines += [f"  {name.ljust(width)}  {text}" for name, text in facts if text]
    if record.profile:
        lines += ["", where_time_went(record.profile, record.run_id, plain(record.profile_path))]
    return "\n".join(lines)


def _nodes(record: RunRecord) -> list[str]:
    if not record.nodes:
        return []
    from orchestrator.report.nodes import node_lines

    return node_lines(record.nodes, short=bool((record.profile or {}).get("short")))


def _workers(parity: Mapping[str, Any] | None) -> str:
    """How several machines compare with one process; see report.workers."""
    found = (parity or {}).get("workers")
    if not found:
        return ""
    equal = counted(found["steps"], "step")
    if found["verdict"] == WorkersConclusion.EQUAL:
        return f"EQUAL to one process in {equal}, up to the order in which gradients are summed"
    return f"{found['verdict']}; see parity.workers in run.json"


def _code(record: RunRecord) -> str:
    """The revision of git and what was not of it; "" where that is not known."""
    git = record.code.get("git") if record.code else None
    if not git:
        return ""
    branch = f" ({plain(git['branch'])})" if git.get("branch") else ""
    dirty = f", {counted(git['changed'], 'changed path')}" if git.get("changed") else ""
    return f"git {git['revision'][:12]}{branch}{dirty}"


def _gate(record: RunRecord) -> str:
    facts = record.acceptance or {}
    return gate_line(facts, refusals_text([refusal_from(each) for each in facts.get("refusals", ())]))


def cancel_text(report: CancelReport) -> str:
    """Return whether the run was cancelled or had already ended, how and when, and the next command."""
    where = (
        f"Its results are here: runs/{report.run_id}"
        if report.fetched
        else f"Next: orch pull {report.run_id}"
    )
    if report.cancelled:
        return f"Cancelled {report.run_id}. Its files are on the machine.\n{where}"
    at = f" on {moment(report.ended_at)}" if report.ended_at else ""
    how = f"{report.reason}: {report.detail}" if report.detail else f"{report.reason}."
    return f"{report.run_id} had already ended{at}: {how} Nothing was cancelled.\n{where}"


def pulled_text(pulled: PullReport) -> str:
    """The last lines of `pull --all`, after the runs."""
    ids = ", ".join(pulled.running)
    going = f"Still running: {ids}. Next: orch logs -f {pulled.running[0]}" if pulled.running else ""
    if not pulled.records:
        return f"All ended runs have been pulled. {going}".rstrip()
    return going


def _resume_line(found: Mapping[str, Any] | None) -> str:
    if not found:
        return ""
    lost = found["omissions"][0]["lost"] if found.get("omissions") else found.get("why")
    return _RESUMED.format(**found) if found["verdict"] == Resumed.EXACT else f"{found['verdict']}: {lost}"


_RESUMED = "{verdict}: killed after step {killed_step} of {steps} and resumed, bitwise identical to the end"


def parity_line(parity: Mapping[str, Any] | None) -> str:
    """The verdict; for a difference also its place, size, suspected cause and remedy."""
    if not parity:
        return ""
    verdict = parity["verdict"]
    if verdict == Conclusion.IDENTICAL:
        steps, compared = parity.get("steps") or 0, parity.get("compared") or 0
        return f"IDENTICAL: {counted(compared, 'tensor')} of {counted(steps, 'step')} bitwise identical"
    return f"{verdict}: {parity.get('detail') or 'no detail was recorded'}"


def difference_line(difference: Mapping[str, Any]) -> str:
    here, there = difference["here"] or "absent", difference["there"] or "absent"
    reason = f" ({difference['reason']})" if difference.get("reason") else ""
    return f"{difference['kind']} {difference['name']}: here {here}, there {there}{reason}"


def _exit(exit_: Exited) -> str:
    detail = exit_.get("detail") or ""
    return f"{exit_['reason']}: {detail}" if detail else str(exit_["reason"])


def _noticed(record: RunRecord) -> list[str]:
    """Problems that were noticed during the run and did not end it."""
    noticed = record.exit.get("noticed", ())
    others = (each for each in noticed if each["what"] != record.exit["reason"])
    return [f"{each.get('detail', '')}{_PREVENTED.get(each['what'], '')}" for each in others]


_PREVENTED = {"not_finite": " With `on_nan: stop` in train:, such a run is ended at once."}
"""What was noticed -> how the profile prevents it."""


def _memory(record: RunRecord) -> str:
    """For a run that ran out of memory: what it used and had, and how to find out what it needs."""
    if not record.lacked:
        return ""
    seen = record.profile or {} if record.lacked == "resources.memory" else {}
    had = f" of {size(seen['memory'])}" if seen.get("memory") else ""
    used = f"at least {size(seen['peak_memory'])}{had} were used. " if seen.get("peak_memory") else ""
    command = f"orch size {plain(record.profile_path)} --write"
    return f"{used}Next: {command}    # measures what it needs, sets {record.lacked}"


def _attempt(attempts: Sequence[AttemptFacts]) -> str:
    """The number of the attempt, how earlier ones ended, and what changed since the last of them."""
    if len(attempts) < 2:
        return ""
    before = ", ".join(str(each["reason"]) for each in attempts[:-1])
    changed = "; ".join(attempts[-1]["changed"]) or "nothing in this project"
    return f"{attempts[-1]['number']}; earlier attempts: {before}; changed since: {changed}"


def attempt_lines(attempts: Sequence[AttemptFacts]) -> list[str]:
    """One line for each of several attempts, of the last few: where it ran, from what, how far, its cost."""
    if len(attempts) < 2:
        return []
    lines = []
    for each in attempts[-_NAMED:]:
        where = f"{each.get('instance_type') or 'a machine'} in {each.get('zone') or 'a zone'}"
        saved, steps, usd = each.get("resumed_from"), each.get("steps"), each.get("usd")
        facts = [
            where,
            f"from a checkpoint of attempt {saved['attempt']}" if saved else "from the beginning",
            counted(steps, "step") if steps else "",
            money(usd) if usd else "",
        ]
        lines.append(f"{each['number']}  {each['reason']}: {', '.join(fact for fact in facts if fact)}")
    return lines


def stack_line(stack: StackFacts | None) -> str:
    if not stack:
        return ""
    undeclared = [d for d in stack["differences"] if not d["declared"]]
    count = counted(stack["packages"], "package") if stack.get("packages") else "stack"
    if undeclared:
        return f"{counted(len(undeclared), 'undeclared difference')}: " + "; ".join(
            map(difference_line, undeclared)
        )
    named = [d["name"] for d in stack["differences"] if d["declared"]]
    tail = f"; expected to differ: {_few(named)}" if named else ""
    equal = "equals" if stack.get("packages") == 1 else "equal"
    against = f"{equal} the lock file, hash for hash" if stack.get("lock") else "recorded"
    return f"{count} {against}; Python {stack.get('python', 'unknown')}{tail}"


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def data_line(data: DataFacts | None) -> str:
    if not data or not data.get("files"):
        return ""
    facts = f"{counted(data['files'], 'file')}, {size(data.get('bytes'))}"
    if altered := data.get("altered"):
        return f"{facts}; {counted(len(altered), 'file')} changed during the run: {altered[0]}"
    if mounts := data.get("mounts"):
        first = next((each for each in mounts if each["target"] not in ("", "/")), mounts[0])
        where = f" on {first['target']}" if first["target"] else ""
        return (
            f"{facts} sent; what the run read is not proven: {first['program']} called {first['call']}{where}"
        )
    if not data.get("checked", True):
        return f"{facts} sent; whether the run read exactly these bytes is not known"
    return f"{facts}, identical on both sides"


def _metrics(metrics: Mapping[str, Any]) -> str:
    shown = {k: v for k, v in metrics.items() if isinstance(v, int | float) and not isinstance(v, bool)}
    return "  ".join(f"{name} {value:.6g}" for name, value in list(shown.items())[:6])


def _model(record: RunRecord) -> list[str]:
    if record.unchecked:
        return [f"not checked, because orch was interrupted. Next: orch pull {record.run_id}"]
    check = record.model_check
    if not check:
        return []
    first, *rest = model_lines(check)
    return [f"{first}{_unconfined(check)}", *rest]


def _unconfined(check: Mapping[str, Any]) -> str:
    """Protections that were missing when the files were read; "" for an older record."""
    isolation = check.get("isolation")
    open_ = [name for name in ("files", "network") if isolation and not isolation.get(name)]
    return f" (read without isolation of {' and '.join(open_)}: docs/security.md)" if open_ else ""


def _files(record: RunRecord) -> str:
    if not record.artifacts:
        silent = record.exit["reason"] == ExitReason.COMPLETED and not (
            record.unwritten or record.not_fetched
        )
        return "none came home: train.outputs of the profile names no files" if silent else ""
    total = sum(artifact["bytes"] for artifact in record.artifacts)
    return f"{counted(len(record.artifacts), 'file')}, {size(total)}, verified, in {record.folder}"


def _not_fetched(record: RunRecord) -> str:
    if not record.not_fetched:
        return ""
    named = [f"{each['path']}: {each['detail']}" for each in record.not_fetched[:_NAMED]]
    more = len(record.not_fetched) - _NAMED
    rest = f"; run.json names {more:,} more" if more > 0 else ""
    return f"{counted(len(record.not_fetched), 'path')} left on the machine: {'; '.join(named)}{rest}"


def _unwritten(record: RunRecord) -> list[str]:
    """One line for each output of the profile that does not exist after the run."""
    lines = []
    for each in record.unwritten[:_NAMED]:
        nearest = f"; the run wrote {each['nearest']}" if each["nearest"] else ""
        lines.append(f"{each['pattern']} of train.outputs: {each['looked_for']} does not exist{nearest}")
    more = len(record.unwritten) - _NAMED
    return [*lines, f"run.json names {more:,} more"] if more > 0 else lines


def cost_line(cost: CostFacts | None) -> str:
    """The cost of the run, and of its machine by then. An older record has only the second."""
    if not cost:
        return ""
    whose = "" if "run_usd" in cost else "the machine so far: "
    charged = cost.get("charged_seconds", cost["seconds"])
    beside = f" (charged as {duration(charged)}, because other runs shared the machine)"
    shared = beside if cost["seconds"] - charged > 0.05 else ""
    own = f"{money(cost['usd'])} for {duration(cost['seconds'])}{shared} at {money(cost['price_usd_hour'])}/h"
    lease = f"; the machine so far: {money(cost['lease_usd'])}" if "lease_usd" in cost else ""
    return whose + own + lease
