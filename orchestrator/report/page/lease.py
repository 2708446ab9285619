"""The page of a lease: what it rented, when, at what price, which runs it had, and what is left of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from orchestrator.ledger import Event, Lease, LeasedRun
from orchestrator.ledger.holding import Holding
from orchestrator.ledger.lease import Attempt
from orchestrator.model.counted import counted
from orchestrator.model.plain import moment
from orchestrator.report.page import safe
from orchestrator.report.page.course import course_of
from orchestrator.report.page.model import (
    Align,
    Chart,
    Charts,
    Column,
    Commands,
    Figure,
    Figures,
    Headline,
    Line,
    Note,
    Notes,
    Page,
    Row,
    Section,
    State,
    Table,
)
from orchestrator.report.units import duration, money

_ROWS = 300


def page_of_lease(lease: Lease, events: Sequence[Event], *, version: str) -> Page:
    """Return the page of a lease as its ledger tells it. `version`: of orch. Contacts no cloud."""
    now = lease.now()
    found = (_course(lease, events), _machines(lease, now), _calls(lease), _runs(lease), _next(lease))
    return Page(
        safe.line(lease.id, 120),
        " — ".join(filter(None, (_date(lease.opened_at), _profile(lease, "cloud"), _profile(lease, "path")))),
        _headline(lease, now),
        Figures(tuple(_figures(lease, now))),
        tuple(section for section in found if section is not None),
        f"Made by orch {version} on {moment(now)} from the lease's ledger. No cloud was asked.",
        tuple(safe.line(run, 120) for run in lease.runs),
    )


def _profile(lease: Lease, key: str) -> str:
    return safe.line(lease.profile.get(key), 200)


def _date(seconds: float | None) -> str:
    return moment(seconds) if seconds and 0 < seconds < 1e11 else ""


# ---------------------------------------------------------------- the verdict


def _headline(lease: Lease, now: float) -> Headline:
    had = f"{counted(len(lease.holdings), 'machine')} for {duration(lease.seconds(now))}"
    spent = f"It had {had} and cost {money(lease.cost(now))}" if lease.holdings else "It never had a machine"
    lost = [run.run_id for run in lease.runs.values() if run.lost is not None]
    if not lease.whole:
        said = f"{spent}, as far as can be read: its ledger {safe.line(lease.flaw, 300)}."
        return Headline(State.NOTE, "Not all of its ledger can be read", said)
    if lost:
        said = f"{spent}; the results of {counted(len(lost), 'run')} went with a machine."
        return Headline(State.BAD, "Results were lost", said)
    if not lease.open:
        return Headline(State.OK, "Closed", f"{spent}; it was confirmed that nothing is left.")
    running = _running(lease, now)
    if not running:
        return Headline(State.NOTE, "Open", f"{spent}; no machine of it is known to run now.")
    until = f", at the latest until {_date(lease.deadline)}" if lease.deadline else ""
    price = money(sum(each.usd_hour for each in running))
    return Headline(State.BUSY, "Open", f"{spent} so far; it costs {price} an hour now{until}.")


def _running(lease: Lease, now: float) -> list[Holding]:
    ended = [each for each in lease.holdings if each.ended_at is not None or (each.deadline or now) < now]
    return [each for each in lease.holdings if lease.open and each not in ended]


def _figures(lease: Lease, now: float) -> Iterator[Figure]:
    yield Figure("cost", money(lease.cost(now)), "so far" if lease.open else "")
    yield Figure("machines", str(len(lease.holdings)), duration(lease.seconds(now)) if lease.holdings else "")
    refused = sum(each.refused for each in lease.attempts)
    if refused:
        yield Figure("refused", str(refused), f"of {counted(len(lease.attempts), 'request')}", State.NOTE)
    if lease.runs:
        here = sum(run.collected for run in lease.runs.values())
        yield Figure("runs", str(len(lease.runs)), f"{here} here")


# ---------------------------------------------------------------- the sections


def _course(lease: Lease, events: Sequence[Event]) -> Section:
    rows = [
        Row(
            (_date(each.at), duration(max(0.0, each.at - lease.opened_at)), each.what, each.detail),
            each.state,
        )
        for each in course_of(events, lease.started)
    ]
    columns = (Column("when"), Column("after", Align.NUMBER), Column("what"), Column("detail"))
    more = f"The first {len(rows) - _ROWS:,} are left out." if len(rows) > _ROWS else ""
    return Section("course", "What happened", (Table(columns, tuple(rows[-_ROWS:]), "", more, states=True),))


def _machines(lease: Lease, now: float) -> Section | None:
    if not lease.holdings:
        return None
    rows = tuple(_machine(lease, each, now) for each in lease.holdings[:_ROWS])
    columns = (
        Column("machine", Align.CODE),
        Column("type"),
        Column("zone"),
        Column("from"),
        Column("ran", Align.NUMBER),
        Column("an hour", Align.NUMBER),
        Column("cost", Align.NUMBER),
    )
    chart = _spent(lease, now)
    blocks = (Table(columns, rows), *((Charts((chart,)),) if chart else ()))
    return Section("machines", "Machines and cost", blocks)


def _machine(lease: Lease, held: Holding, now: float) -> Row:
    seconds = held.seconds(lease.closed_at or now)
    facts = [safe.line(held.machine.get(key), 80) for key in ("id", "instance_type", "zone")]
    paid = money(seconds / 3600 * held.usd_hour)
    return Row((*facts, _date(held.begun_at), duration(seconds), money(held.usd_hour), paid))


def _spent(lease: Lease, now: float) -> Chart | None:
    """Return the cost over time; None if nothing was to be paid."""
    until = lease.closed_at or now
    spans = [(each.begun_at, each.begun_at + each.seconds(until), each.usd_hour) for each in lease.holdings]
    moments = sorted({lease.opened_at, *(at for begun, ended, _ in spans for at in (begun, ended))})
    costs = [
        sum(max(0.0, min(at, ended) - begun) / 3600 * price for begun, ended, price in spans)
        for at in moments
    ]
    if len(moments) < 2 or not costs[-1]:
        return None
    xs = tuple(at - moments[0] for at in moments)
    line = Line("US dollars", xs, tuple(costs))
    return Chart("Cost in US dollars", (line,), axis="s", begin=0.0, end=xs[-1], filled=True)


def _calls(lease: Lease) -> Section | None:
    """The requests for machines, if one was refused or its result is not known."""
    if all(each.outcome == "accepted" for each in lease.attempts):
        return None
    columns = (
        Column("type"),
        Column("zone"),
        Column("an hour", Align.NUMBER),
        Column("result"),
        Column("why"),
    )
    rows = tuple(_call(each) for each in lease.attempts[-_ROWS:])
    lead = "Each offer that was asked for, in this order."
    return Section("requests", "Requests for machines", (Table(columns, rows, states=True),), lead)


def _call(attempt: Attempt) -> Row:
    state = State.OK if attempt.outcome == "accepted" else State.NOTE if attempt.settled else State.BAD
    outcome = attempt.outcome if attempt.settled else f"{attempt.outcome}; a machine may exist"
    facts = (safe.line(attempt.instance_type, 80), safe.line(attempt.zone, 80), money(attempt.price))
    return Row((*facts, safe.line(outcome, 80), safe.line(attempt.message, 300)), state)


def _runs(lease: Lease) -> Section | None:
    if not lease.runs:
        return None
    columns = (
        Column("run", Align.CODE),
        Column("began"),
        Column("ended"),
        Column("cost", Align.NUMBER),
        Column("results"),
    )
    rows = tuple(_run(lease, each) for each in list(lease.runs.values())[-_ROWS:])
    return Section("runs", "Runs", (Table(columns, rows, states=True),))


def _run(lease: Lease, run: LeasedRun) -> Row:
    usd = [each.usd for each in lease.ran if each.run_id == run.run_id]
    where = "lost with its machine" if run.lost is not None else "here" if run.collected else "on the machine"
    where = "discarded with its machine" if run.lost is None and run.gone is not None else where
    state = State.BAD if run.lost is not None else State.OK if run.exit_reason == "completed" else State.NOTE
    ended = safe.line(run.exit_reason or ("lost" if run.lost is not None else "not known"), 40)
    paid = money(sum(usd)) if usd else ""
    return Row(
        (safe.line(run.run_id, 120), _date(run.started_at), ended.replace("_", " "), paid, where), state
    )


def _next(lease: Lease) -> Section:
    lines = [f"orch report {safe.line(run, 120)}" for run in list(lease.runs)[-3:]]
    if lease.open:
        lines += ["orch status --live", f"orch down --lease {safe.line(lease.id, 120)}"]
    again = Note("leased by", safe.line(lease.up_command, 1000), code=True)
    blocks = (Notes((again,)), *((Commands("Look further", tuple(lines)),) if lines else ()))
    return Section("next", "Repeat it", blocks)
