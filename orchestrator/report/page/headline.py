"""The verdict on a run in one sentence, and the most important numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrator.model import RunRecord
from orchestrator.model.counted import counted
from orchestrator.model.outcomes import Conclusion, ExitReason, Stage
from orchestrator.parity.wording import STAGE_WORDS
from orchestrator.report.page import safe
from orchestrator.report.page.model import Figure, Figures, Headline, State
from orchestrator.report.page.words import ENDS, capital, digits
from orchestrator.report.units import duration, money
from orchestrator.report.where import START_UP, startup_share

_BEST = ("val_accuracy", "accuracy", "auc", "f1", "val_loss", "loss")
_METRICS = 2
_GOOD = (Conclusion.IDENTICAL, Conclusion.EQUIVALENT)


def headline_of(record: RunRecord, tail: str = "") -> Headline:
    """Return the verdict: failures first, then what was proven. `tail`: the end of the run's output."""
    reason = safe.line(record.exit.get("reason"), 40)
    if reason == ExitReason.RUNNING:
        return Headline(
            State.BUSY, "Running", f"{safe.line(record.run_id)} is still running; this page shows it so far."
        )
    if reason != ExitReason.COMPLETED:
        return _unfinished(record, reason, tail)
    return _finished(record)


def _unfinished(record: RunRecord, reason: str, tail: str) -> Headline:
    detail = safe.line(record.exit.get("detail"), 400)
    parity = safe.mapping(record.parity)
    stopped = parity.get("verdict") not in (None, *_GOOD) and reason == ExitReason.NOT_STARTED
    if stopped:
        found = _stopped(parity)
        return Headline(
            State.BAD, f"Parity: {safe.line(parity['verdict'], 40)}", f"No step was trained: {_lower(found)}."
        )
    state = State.NOTE if reason in (ExitReason.CANCELLED, ExitReason.OBSERVED) else State.BAD
    label = ENDS.get(reason, f"Ended: {reason or 'unknown'}")
    return Headline(
        state,
        label,
        _one_sentence(
            label, detail, _how_far(record), _last_line(tail) if reason == ExitReason.FAILED else ""
        ),
    )


def _stopped(parity: Mapping[str, Any]) -> str:
    """Say where the two sides differ first, and what is known about the cause."""
    step, stage = safe.count(parity.get("step")), safe.line(parity.get("stage"), 20)
    cause = safe.line(parity.get("cause"), 300).rstrip(".")
    words = STAGE_WORDS.get(Stage(stage)) if stage in tuple(map(str, Stage)) else None
    if step is None or words is None:
        return safe.line(parity.get("summary") or parity.get("detail"), 400).rstrip(".")
    return f"the two sides differ from step {step} on, first in {words}" + (f". {cause}" if cause else "")


def _one_sentence(label: str, detail: str, far: str, last: str) -> str:
    said = detail.rstrip(".") or label
    printed = f": {last}" if last else "."
    return f"{capital(said)}{f', {far}' if far else ''}{printed}"


def _last_line(tail: str) -> str:
    """Return the last line of the output: for a failed Python program, its error."""
    lines = [line for each in tail.split("\n") if (line := safe.line(each.rpartition("\r")[2], 200))]
    return lines[-1] if lines else ""


def _how_far(record: RunRecord) -> str:
    seen = safe.mapping(record.profile)
    steps, wall = safe.count(seen.get("steps")), safe.number(seen.get("wall_s"))
    if wall is None:
        return ""
    return f"after {duration(wall)}" + (f" and {counted(steps, 'step')}" if steps else "")


def _finished(record: RunRecord) -> Headline:
    proof, proven = _proof(record)
    model, sound = _model(record)
    missing, unsound = _missing(record), _not_finite(record)
    good = proven is not False and sound is not False and not missing and not unsound
    state = State.OK if good else State.NOTE
    label = "Trained"
    if proven and good:
        all_checked = sound or not model
        label = "Trained, and proven the same" if all_checked else "Trained, with the same first steps"
    if proven is False:
        label = f"Trained; parity: {safe.line(safe.mapping(record.parity).get('verdict'), 40)}"
    elif sound is False:
        state, label = State.BAD, "Trained; a model does not do here what it did there"
    elif unsound:
        label = "Trained; its loss became no number"
    elif missing:
        label = "Trained; results are missing"
    trained = f"It trained to the end {_where(record)}"
    clauses = [clause for clause in (trained, unsound, proof, model, missing) if clause]
    return Headline(state, label, f"{_joined(clauses)}.")


def _not_finite(record: RunRecord) -> str:
    noticed = safe.mappings(record.exit.get("noticed"))
    return "its loss became NaN or infinite" if any(e.get("what") == "not_finite" for e in noticed) else ""


def _joined(clauses: list[str]) -> str:
    if len(clauses) < 3:
        return ", and ".join(clauses)
    return f"{'; '.join(clauses[:-1])}; and {clauses[-1]}"


def _where(record: RunRecord) -> str:
    machine = safe.mapping(record.machine)
    wall = safe.number(safe.mapping(record.timings).get("train_s")) or safe.number(
        safe.mapping(record.profile).get("wall_s")
    )
    took = f"in {duration(wall)}" if wall is not None else ""
    place = safe.line(machine.get("instance_type"), 60)
    provider = safe.line(machine.get("provider"), 30)
    on = (
        f"on {place}" + (f" of {provider}" if provider and provider != place else "")
        if place
        else "on this computer"
    )
    on = "on a local machine" if place == provider == "local" else on
    return f"{took} {on}".strip()


def _proof(record: RunRecord) -> tuple[str, bool | None]:
    """Return what parity found, and whether that proves that both sides are equal; None if nothing was
    compared.
    """
    parity = safe.mapping(record.parity)
    verdict = parity.get("verdict")
    steps = safe.count(parity.get("steps")) or 0
    first = f"its first {counted(steps, 'step')}" if steps != 1 else "its first step"
    if verdict == Conclusion.IDENTICAL:
        return f"{first} {'are' if steps != 1 else 'is'} equal on both sides to the last bit", True
    if verdict == Conclusion.EQUIVALENT:
        return f"{first} differ by rounding only", True
    if verdict == Conclusion.NOT_COMPARED:
        return "its first steps could not be compared", None
    if verdict is None:
        return "", None
    return "its first steps are not those of this computer", False


def _model(record: RunRecord) -> tuple[str, bool | None]:
    check = safe.mapping(record.model_check)
    files = list(safe.mappings(check.get("files"))) or ([check] if check else [])
    judged = [each for each in files if not each.get("not_checked")]
    if not judged:
        which = "the model file was" if len(files) == 1 else f"{len(files)} model files were"
        return (f"{which} not checked", None) if files else ("", None)
    wrong = [each for each in judged if not (each.get("loaded") and each.get("equal"))]
    if wrong:
        verb, they = ("does", "it") if len(wrong) == 1 else ("do", "they")
        return (
            f"{counted(len(wrong), 'model file')} {verb} not do here what {they} did there",
            False,
        )
    if len(judged) < len(files):
        left = len(files) - len(judged)
        verb = "does" if len(judged) == 1 else "do"
        was = "was" if left == 1 else "were"
        return (
            f"{len(judged)} of {len(files)} model files {verb} the same here ({left} {was} not checked)",
            None,
        )
    return _same_here(judged), True


def _same_here(files: Sequence[Mapping[str, Any]]) -> str:
    one = len(files) == 1
    if not any(each.get("predicted", True) for each in files):
        which = "its results" if one else f"all {len(files)} files of results"
        return f"{which} hold the same values here"
    which, do, it = ("the model", "does", "it") if one else (f"all {len(files)} model files", "do", "they")
    return f"{which} {do} here what {it} did there"


def _missing(record: RunRecord) -> str:
    left = [each for each in safe.mappings(record.not_fetched) if each.get("kind") in ("file", "unreadable")]
    if record.unwritten:
        verb = "was" if len(record.unwritten) == 1 else "were"
        return f"{counted(len(record.unwritten), 'declared output')} {verb} never written"
    return f"{counted(len(left), 'file')} stayed on the machine" if left else ""


def _lower(words: str) -> str:
    return words[:1].lower() + words[1:] if words[:2] != words[:2].upper() else words


# ---------------------------------------------------------------- the numbers beside it


def figures_of(record: RunRecord) -> Figures:
    """Return at most six numbers: the most important metrics, time, speed, cost, and what limited the run."""
    return Figures(tuple([*_metrics(record), *_time(record), *_cost(record), *_limit(record)][:6]))


def _metrics(record: RunRecord) -> Iterator[Figure]:
    numbers = {
        safe.line(name, 40): value
        for name, each in safe.mapping(record.metrics).items()
        if (value := safe.number(each)) is not None
    }
    best = [name for name in _BEST if name in numbers]
    others = [name for name in numbers if name not in best and name not in ("epochs", "steps")]
    for name in [*best, *others][:_METRICS]:
        yield Figure(name.replace("_", " "), digits(numbers[name], 4))


def _time(record: RunRecord) -> Iterator[Figure]:
    seen: Mapping[str, Any] = safe.mapping(record.profile)
    wall = safe.number(safe.mapping(record.timings).get("train_s")) or safe.number(seen.get("wall_s"))
    if wall is not None:
        yield Figure("time", duration(wall))
    steps, speed = safe.count(seen.get("steps")), safe.number(seen.get("steps_per_s"))
    if steps:
        yield Figure("steps", f"{steps:,}", f"{speed:.3g} a second" if speed else "")


def _cost(record: RunRecord) -> Iterator[Figure]:
    cost = safe.mapping(record.cost)
    usd = safe.number(cost.get("run_usd", cost.get("usd")))
    if usd is not None:
        price = safe.number(cost.get("price_usd_hour"))
        yield Figure("cost", money(usd), f"at {money(price)}/h" if price is not None else "")


def _limit(record: RunRecord) -> Iterator[Figure]:
    seen = safe.mapping(record.profile)
    limit, startup = safe.line(seen.get("limited_by"), 30), startup_share(seen)
    if startup:
        yield Figure("limited by", START_UP, f"{startup} of the run")
    elif limit:
        yield Figure("limited by", limit)
