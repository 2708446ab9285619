"""Where the time went: in total and over time, with the use of CPU, GPU, memory, disk and network."""

from __future__ import annotations

from orchestrator.profiling.timeline import Series, Shares, Timeline
from orchestrator.report.page import safe
from orchestrator.report.page.model import (
    Block,
    Chart,
    Charts,
    Layer,
    Line,
    Note,
    Notes,
    Part,
    Parts,
    Section,
    Stacked,
    Unit,
)
from orchestrator.report.page.words import sentence
from orchestrator.report.units import duration, share
from orchestrator.report.where import START_UP, measures, startup_sentence, startup_share, time_notes
from orchestrator.runs.details import RunDetails

KINDS = (
    ("input", "input wait", "a step waited for its batch"),
    ("compute", "compute", "in a training step, or a GPU at work"),
    (
        "host",
        "host",
        "at work outside of a step, or ready and in want of a core: imports, tracing, callbacks, validation",
    ),
    ("idle", "idle", "the job had nothing to do on a core: it waited for a disk, a network, a lock, a clock"),
)
_CHARTS: tuple[tuple[str, tuple[str, ...], Unit, str], ...] = (
    ("CPU", ("cpu",), Unit.CORES, "cores"),
    ("GPU", ("gpu",), Unit.SHARE, ""),
    ("Memory", ("memory",), Unit.BYTES, "limit"),
    ("GPU memory", ("gpu memory",), Unit.BYTES, "limit"),
    ("Disk", ("disk read", "disk written"), Unit.RATE, ""),
    ("Network of the machine", ("network",), Unit.RATE, ""),
)


def section(details: RunDetails) -> Section | None:
    seen, line = safe.mapping(details.record.profile), details.timeline
    blocks: list[Block] = []
    if line:
        blocks += [parts_of(line, "All of it"), stacked_of(line), Charts(charts_of(line), linked=True)]
    notes = _notes(details) if seen else ()
    if notes:
        blocks.append(Notes(notes))
    if not blocks:
        return None
    limited = START_UP if startup_share(seen) else safe.line(seen.get("limited_by"), 40)
    because = safe.line(seen.get("because"), 500)
    startup = safe.line(startup_sentence(seen), 200)
    lead = sentence(sentence(f"Limited by {limited}" if limited else "", startup), because)
    return Section("time", "Where each second went", tuple(blocks), lead)


def parts_of(line: Timeline, title: str) -> Parts:
    totals = line.totals
    return Parts(title, tuple(_part(line, key, name, meaning, totals) for key, name, meaning in _kinds(line)))


def _kinds(line: Timeline) -> list[tuple[str, str, str]]:
    """Return the kinds of time; without the wait for input if it was not measured, because it is part of
    the steps then.
    """
    if line.first is None:
        return [
            (key, name, meaning)
            for key, name, meaning in KINDS
            if key != "input" and (key != "compute" or line.totals.compute)
        ]
    return [
        (
            key,
            name,
            "in a training step; what of it waited for input was not measured"
            if key == "compute" and not line.input_known
            else meaning,
        )
        for key, name, meaning in KINDS
        if key != "input" or line.input_known
    ]


def _part(line: Timeline, key: str, name: str, meaning: str, totals: Shares) -> Part:
    of = float(getattr(totals, key))
    return Part(name, key, of, f"{duration(of * line.seconds)} · {share(of)}", meaning)


def stacked_of(line: Timeline) -> Stacked:
    layers = tuple(
        Layer(name, key, tuple(round(float(getattr(span.shares, key)), 4) for span in line.spans))
        for key, name, _ in _kinds(line)
    )
    edges = (*(span.begin for span in line.spans), line.spans[-1].end) if line.spans else ()
    marks = [(line.first, "first step"), (line.last, "last step")]
    return Stacked("Over time", edges, layers, tuple((at, name) for at, name in marks if at is not None))


def charts_of(line: Timeline) -> tuple[Chart, ...]:
    return tuple(
        _chart(title, found, unit, limit, line)
        for title, names, unit, limit in _CHARTS
        if (found := [line.series[name] for name in names if name in line.series])
    )


def _chart(title: str, found: list[Series], unit: Unit, limit: str, line: Timeline) -> Chart:
    lines = tuple(Line(one.name, one.times, one.values, tone) for tone, one in enumerate(found))
    highest = max(value for one in found for value in one.values)
    most = found[0].limit if limit else None
    shown = most if most is not None and (unit == Unit.CORES or highest * 3 > most) else None
    return Chart(
        title, lines, unit, "s", 0.0, line.seconds, shown, limit if shown else "", filled=len(lines) == 1
    )


def _notes(details: RunDetails) -> tuple[Note, ...]:
    seen = safe.mapping(details.record.profile)
    told = " · ".join(
        f"{name} {safe.line(text, 80)}" for name, text in measures(seen) if name != "limited by"
    )
    joined: list[tuple[str, str]] = [("measured", told)] if told else []
    for label, text in time_notes(seen):
        if label or not joined:
            joined.append((label, safe.line(text, 800)))
        else:
            joined[-1] = (joined[-1][0], sentence(joined[-1][1], safe.line(text, 800)))
    return tuple(Note(label, text) for label, text in joined)
