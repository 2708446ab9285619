"""The output of `orch runs`."""

from __future__ import annotations

import textwrap
import time

from orchestrator.model.history import History, ModelCount, PastRun, Where
from orchestrator.model.plain import plain
from orchestrator.report.units import money

COLUMNS = 100
_METRICS = 4
_LONGEST = 24
_RUN = 29


def history_text(history: History, first_run: str) -> str:
    """One row per run, newest first. `first_run`: the command that leads to a first run."""
    parts = [_table(history)] if history.runs else []
    parts += [f"Not listed, {one.place}: {one.why}" for one in history.damaged]
    if history.stale:
        parts.append(f"{history.ledger} could not be read now; its last local copy is shown.")
    if history.more:
        parts.append(f"To list older runs: orch runs --last {2 * len(history.runs)}")
    if not history.runs:
        parts.append(f"This project has no runs yet.\nNext: {first_run}")
    return "\n".join(parts)


def _table(history: History) -> str:
    """One row per run, and a line below it with its verdict and metrics."""
    rows = [_row(one) for one in history.runs]
    heading = ["run", "started", "ended", "cost", "attempts", "results"]
    widths = [min(_RUN, max(len(row[c]) for row in (heading, *rows))) for c in range(len(heading))]
    lines = _lines(heading, widths)
    for one, row in zip(history.runs, rows, strict=True):
        lines += [*_lines(row, widths), *_details(one)]
    return "\n".join(lines)


def _lines(row: list[str], widths: list[int]) -> list[str]:
    """Format a row. A run id that is too long for its column gets a line of its own, so it can be copied."""
    run, *others = row
    alone = [run] if len(run) > widths[0] else []
    cells = ["" if alone else run, *others]
    return [*alone, "  ".join(c.ljust(width) for c, width in zip(cells, widths, strict=True)).rstrip()]


def _row(one: PastRun) -> list[str]:
    return [
        one.run_id,
        _when(one),
        one.reason or _going_on(one),
        "-" if one.usd is None else money(one.usd),
        str(one.attempts),
        str(one.where),
    ]


def _going_on(one: PastRun) -> str:
    return "not seen" if not one.active else "queued" if one.queued else "running"


def _details(one: PastRun) -> list[str]:
    facts = [
        f"by {_cut(one.owner)}" if one.owner else "",
        f"parity {one.parity}" if one.parity else "",
        _models(one.models),
        _metrics(one),
        _where(one),
    ]
    text = ", ".join(fact for fact in facts if fact)
    return textwrap.wrap(text, COLUMNS, initial_indent="  ", subsequent_indent="  ")


def _when(one: PastRun) -> str:
    at = one.started_at if one.started_at is not None else one.recorded_at
    return "-" if at is None else time.strftime("%Y-%m-%d %H:%M", time.gmtime(at))


def _models(count: ModelCount | None) -> str:
    if count is None:
        return ""
    parts = ((count.same, "the same here"), (count.wrong, "not"), (count.not_checked, "not checked"))
    return "models: " + ", ".join(f"{number} {words}" for number, words in parts if number)


def _metrics(one: PastRun) -> str:
    return ", ".join(f"{_cut(name)} {value:.4g}" for name, value in list(one.metrics.items())[:_METRICS])


def _where(one: PastRun) -> str:
    """The machine or computer that has the results, or had them; "" if they are here or lost."""
    if one.where is Where.DISCARDED:
        return f"results discarded with {_cut(one.place)}"
    if one.where is Where.MACHINE:
        return f"on {_cut(one.place)}"
    return f"with {_cut(one.place)}" if one.where is Where.ELSEWHERE else ""


def _cut(text: str) -> str:
    """Shorten a text to one line of at most _LONGEST characters."""
    line = " ".join(plain(text).split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
