"""Build a page from a run's details. The machine may have written anything: no content of a record makes
this fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from orchestrator.model.outcomes import ExitReason
from orchestrator.model.plain import moment
from orchestrator.report.page import cost, headline, metrics, parity, repeat, results, safe, stack, time, two
from orchestrator.report.page.model import Block, Figures, Headline, Note, Notes, Output, Page, Section, State
from orchestrator.report.page.two import Comparison
from orchestrator.report.page.words import capital
from orchestrator.runs.details import RunDetails

_DAMAGED = (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError)
"""What a record raises whose parts have other shapes than orch writes."""

_WELL = (ExitReason.COMPLETED, ExitReason.RUNNING, ExitReason.OBSERVED, ExitReason.NOT_STARTED)
"""Ends after which the output needs no search for an error."""

_RESUME = (
    ("checkpoint after step", "checkpoint_step"),
    ("killed after step", "killed_step"),
    ("steps", "steps"),
)


def page_of(details: RunDetails, *, version: str, now: float) -> Page:
    """Return the page of one run. `version`: of orch; `now`: Unix seconds."""
    record = details.record
    told = _guarded("verdict", "Verdict", lambda: headline.headline_of(record, details.tail))
    verdict = told if isinstance(told, Headline) else Headline(State.NOTE, "Not readable", _UNREADABLE)
    numbers = _guarded("figures", "", lambda: headline.figures_of(record))
    return Page(
        safe.line(record.run_id, 120),
        _guarded_text(lambda: _subtitle(details)),
        verdict,
        numbers if isinstance(numbers, Figures) else Figures(()),
        tuple(_sections(details)),
        f"Made by orch {version} on {moment(now)} from run.json and the files of the run.",
        (safe.line(record.run_id, 120),),
    )


_UNREADABLE = "The record of this run is damaged; what can be read of it is below."


def _sections(details: RunDetails) -> Iterator[Section]:
    record = details.record
    builders: tuple[tuple[str, str, Callable[[], Section | None]], ...] = (
        ("noticed", "Noticed", lambda: _noticed(details)),
        ("metrics", "Loss and metrics", lambda: metrics.section(details)),
        ("time", "Where each second went", lambda: time.section(details)),
        ("parity", "Parity of the first steps", lambda: parity.section(record.parity, details.rungs)),
        ("resume", "Resume proof", lambda: _resume(details)),
        ("stack", "Stack and data", lambda: stack.section(record)),
        ("results", "Results", lambda: results.section(record)),
        ("cost", "Cost and machine", lambda: cost.section(record)),
        ("attempts", "Attempts", lambda: cost.attempts(record)),
        ("repeat", "Repeat it", lambda: repeat.section(record)),
        ("output", "Output", lambda: _output(details)),
    )
    ended_well = safe.mapping(record.exit).get("reason") in _WELL
    for key, title, build in builders if ended_well else (builders[-1], *builders[:-1]):
        found = _guarded(key, title, build)
        if isinstance(found, Section):
            yield found


def _guarded(key: str, title: str, build: Callable[[], object]) -> object:
    """Return the section that `build` makes; if a part of the record is damaged, a section that says so."""
    try:
        return build()
    except _DAMAGED:
        note = Note("", "This part of run.json is not what orch writes, so it is not shown.", State.NOTE)
        return Section(key, title, (Notes((note,)),), state=State.NOTE, damaged=True)


def _guarded_text(build: Callable[[], str]) -> str:
    try:
        return build()
    except _DAMAGED:
        return ""


def _subtitle(details: RunDetails) -> str:
    """Return when and where the run took place."""
    record = details.record
    last = safe.mapping(record.attempts[-1]) if record.attempts else {}
    at = safe.number(last.get("ended_at")) or safe.number(last.get("started_at")) or details.recorded_at
    machine = safe.mapping(record.machine)
    place = [safe.line(machine.get(key), 60) for key in ("provider", "instance_type", "zone")]
    where = " · ".join(dict.fromkeys(part for part in place if part)) or "this computer"
    command = " ".join(safe.line(word, 200) for word in safe.items(record.command, 40))
    return " — ".join(
        part for part in (moment(at) if at and 0 < at < 1e11 else "", where, safe.line(command, 160)) if part
    )


def _noticed(details: RunDetails) -> Section | None:
    """Return the problems that were noticed during the run."""
    exit_ = safe.mapping(details.record.exit)
    told = [
        Note(
            capital(safe.line(each.get("what"), 40)).replace("_", " "),
            safe.line(each.get("detail")),
            State.NOTE,
        )
        for each in safe.mappings(exit_.get("noticed"))
    ]
    if details.record.lacked:
        profile = safe.line(details.record.profile_path, 400)
        told.append(Note("Memory", f"Next: orch size {profile} --write measures what it needs.", State.NOTE))
    return (
        Section("noticed", "Noticed while it ran", (Notes(tuple(told)),), state=State.NOTE) if told else None
    )


def _resume(details: RunDetails) -> Section | None:
    proof = safe.mapping(details.record.resume_proof)
    if not proof:
        return None
    verdict = safe.line(proof.get("verdict"), 40)
    facts = [Note(label, f"{value:,}") for label, key in _RESUME if (value := safe.count(proof.get(key)))]
    lost = [
        Note(
            "not restored",
            f"{safe.line(each.get('lost'))}: {_names(each.get('names'))}",
            State.BAD,
        )
        for each in safe.mappings(proof.get("omissions"), 20)
    ]
    why = [Note("why", safe.text(proof.get("why")))] if proof.get("why") else []
    state = State.OK if verdict == "EXACT" else State.NOTE
    lead = f"{verdict}: killed after a checkpoint, started again, and compared with a run without a break."
    return Section("resume", "Resume proof", (Notes((*facts, *lost, *why)),), lead, state)


def _names(value: object) -> str:
    return ", ".join(safe.line(name, 80) for name in safe.items(value, 8))


def _output(details: RunDetails) -> Section | None:
    if not details.tail.strip():
        return None
    failed = safe.mapping(details.record.exit).get("reason") not in _WELL
    shown = "\n".join(
        line.rstrip("\r").rpartition("\r")[2].rpartition("\b")[2] for line in details.tail.split("\n")
    )
    blocks: tuple[Block, ...] = (Output("The end of what it printed", shown.strip("\n"), open=failed),)
    return Section("output", "Output", blocks)


# ---------------------------------------------------------------- two runs


def page_of_two(a: RunDetails, b: RunDetails, compared: Comparison, *, version: str, now: float) -> Page:
    """Return the page that compares two runs."""
    names = (safe.line(a.record.run_id, 120), safe.line(b.record.run_id, 120))
    told = _guarded("verdict", "Verdict", lambda: two.headline_of(names, compared))
    return Page(
        f"{names[0]} and {names[1]}",
        "Two runs compared",
        told if isinstance(told, Headline) else Headline(State.NOTE, "Not readable", _UNREADABLE),
        Figures(()),
        tuple(_sections_of_two(a, b, compared)),
        f"Made by orch {version} on {moment(now)} from the records of both runs.",
        names,
    )


def _sections_of_two(a: RunDetails, b: RunDetails, compared: Comparison) -> Iterator[Section]:
    builders: Sequence[tuple[str, str, Callable[[], Section | None]]] = (
        ("facts", "Side by side", lambda: two.facts(a, b)),
        ("parity", "Parity of the first steps", lambda: parity.section(compared.verdict, compared.rungs)),
        ("metrics", "Loss and metrics", lambda: two.curves(a, b)),
        ("time", "Where each second went", lambda: two.times(a, b)),
        ("results", "Results", lambda: two.results(a, b, compared.results)),
    )
    for key, title, build in builders:
        found = _guarded(key, title, build)
        if isinstance(found, Section):
            yield found
