"""The report on two runs: finding, evidence, cause, cleared candidates, treatment, prognosis."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from orchestrator.model.counted import counted
from orchestrator.model.outcomes import Conclusion, Outcome, Stage
from orchestrator.parity.wording import STAGE_WORDS

WIDTH = 80
"""Columns, if the width of the terminal is not known."""

MOST = 4
"""The most candidates of one outcome that are listed; the rest is counted."""

_UNTRIED = (Outcome.NOT_TRIED, Outcome.INTERNAL_ERROR)

_MARGIN = 12

_HEADS: Mapping[str, str] = {
    Conclusion.IDENTICAL: "the two runs are bitwise identical",
    Conclusion.EQUIVALENT: "the two runs differ by rounding only",
    Conclusion.DIVERGENT: "the two runs are not the same",
    Conclusion.UNSTABLE: "the script gives different results on one machine",
    Conclusion.NOT_COMPARED: "the two runs could not be compared",
}
_HEADS_OF_RECORDS: Mapping[str, str] = {
    **_HEADS,
    Conclusion.IDENTICAL: "the same job with the same results; tensors were not recorded for both runs",
    Conclusion.NOT_COMPARED: "tensors were not recorded for both runs, and their records do not settle it",
}
_BEFORE = {
    Stage.BATCH: "The data files that were seen to be read are equal.",
    Stage.INITIAL: "The batch before it is bitwise identical.",
    Stage.ACTIVATION: "Batch and initial weights before it are bitwise identical.",
    Stage.LOSS: "Batch, initial weights and layer outputs before it are bitwise identical.",
    Stage.GRADIENT: "Everything before it, from the batch to the loss, is bitwise identical.",
    Stage.UPDATE: "Everything before it, from the batch to the gradients, is bitwise identical.",
    Stage.METRICS: "Everything before it, from the batch to the updated weights, is bitwise identical.",
}
_OTHER_FILES = "The files that differ do not cause this."
_OTHER_CACHES = (
    "The data that were seen to be read are equal; files that libraries keep for themselves are not."
)
_MANY = (Stage.INITIAL, Stage.UPDATE)
"""Stages whose names are plural."""
_SEEN_BEFORE = "Everything that was observed before it, from the batch on, is bitwise identical."
_COLOURS: Mapping[str, str] = {Conclusion.IDENTICAL: "32", Conclusion.EQUIVALENT: "33"}

Parity = Mapping[str, Any]
Paint = Callable[[str, str], str]


def letter(parity: Parity, *, width: int = WIDTH, colour: bool = False) -> str:
    """Format a verdict for one screen. `parity`: as in run.json. `colour`: with terminal colours."""
    verdict = str(parity["verdict"])
    paint = _painted if colour else _plain
    heads = _HEADS_OF_RECORDS if parity.get("recorded") else _HEADS
    lines = [f"{paint(verdict, _COLOURS.get(verdict, '31'))}: {heads.get(verdict, '')}", ""]
    for name, texts in _parts(parity):
        lines += _part(name, list(texts), max(40, width), paint)
    return "\n".join(lines)


def _parts(parity: Parity) -> tuple[tuple[str, Iterable[str]], ...]:
    unseen = _unseen(parity)
    if not parity.get("stage"):
        return (
            ("Finding", (_summary(parity),)),
            ("Recorded", _recorded(parity)),
            ("Not seen", unseen),
            ("Treatment", filter(None, [parity.get("fix")])),
        )
    return (
        ("Finding", _finding(parity)),
        ("Evidence", _evidence(parity)),
        ("Not seen", unseen),
        ("Cause", _cause(parity)),
        ("Cleared", _listed(parity, Outcome.CLEARED)),
        ("Not needed", _listed(parity, Outcome.NOT_NEEDED)),
        ("Not tried", _listed(parity, Outcome.NOT_TRIED)),
        ("Orch failed", _listed(parity, Outcome.INTERNAL_ERROR)),
        ("Treatment", filter(None, [parity.get("fix")])),
        ("Prognosis", _prognosis(parity)),
    )


def _recorded(parity: Parity) -> Iterator[str]:
    """One row for each fact that differs between two records."""
    for fact in parity.get("recorded") or ():
        if not fact["equal"]:
            values = (textwrap.shorten(fact[side] or "not recorded", 30, placeholder=" …") for side in "ab")
            yield f" {fact['name']:20} {' | '.join(f'{value:30}' for value in values)}".rstrip()


def _summary(parity: Parity) -> str:
    """The summary; older records have only the detail."""
    return str(parity.get("summary") or parity.get("detail") or "no detail was recorded")


def _unseen(parity: Parity) -> tuple[str, ...]:
    """What was not compared, in one sentence."""
    notes = parity.get("not_compared") or ()
    return (f"{'; '.join(notes)}.",) if notes else ()


def _part(name: str, texts: Sequence[str], width: int, paint: Paint) -> list[str]:
    """Wrap texts with `name` in the margin of the first line. A text that begins with a space is a table row
    and is not wrapped."""
    margin = " " * _MARGIN
    lines: list[str] = []
    for text in texts:
        wrapped = textwrap.wrap(
            text, width - _MARGIN, break_on_hyphens=False, break_long_words=False, subsequent_indent=""
        )
        lines += [text.lstrip()] if text.startswith(" ") else wrapped
    return [(paint(name.ljust(_MARGIN), "1") if i == 0 else margin) + line for i, line in enumerate(lines)]


def _plain(text: str, _code: str) -> str:
    return text


def _painted(text: str, code: str) -> str:
    return f"\x1b[1;{code}m{text}\x1b[0m" if code != "1" else f"\x1b[1m{text}\x1b[0m"


# ---------------------------------------------------------------- what was seen


def _finding(parity: Parity) -> Iterator[str]:
    who = "Two runs of it" if parity["verdict"] == Conclusion.UNSTABLE else "The runs"
    tensor = f": {parity['tensor']}" if parity.get("tensor") else ""
    others = parity.get("others") or 0
    more = f" (and {others:,} more there)" if others else ""
    yield f"{who} first differ in step {parity['step']}, in {_stage(parity['stage'])}{tensor}{more}."
    shows = parity.get("shows")
    if shows:
        verb = "differ" if shows["stage"] in _MANY else "differs"
        yield f"As a result {_stage(shows['stage'])} of step {shows['step']} {verb}: {shows['tensor']}."


def _stage(name: str) -> str:
    return STAGE_WORDS.get(name, name)


def _evidence(parity: Parity) -> Iterator[str]:
    if parity.get("difference"):
        yield _measured(parity["difference"], parity.get("relative"), parity.get("tensor") or "")
    shows = parity.get("shows")
    if shows:
        name = shows["stage"].capitalize() if shows["stage"] != Stage.INITIAL else "Initial weights"
        yield f"{name}: {_sized(shows['detail'], shows['relative'])}."
    elif parity["verdict"] != Conclusion.UNSTABLE and parity["stage"] in _BEFORE:
        files = [each["outcome"] for each in parity.get("candidates") or () if each.get("topic") == "data"]
        if parity["stage"] == Stage.BATCH and files:
            yield from () if {Outcome.CONFIRMED, Outcome.PART, *_UNTRIED} & {*files} else (_OTHER_FILES,)
            return
        caches = any(each.get("topic") == "cache" for each in parity.get("candidates") or ())
        if parity["stage"] == Stage.BATCH and caches:
            yield _OTHER_CACHES
            return
        everything = parity.get("not_compared") and parity["stage"] not in (Stage.BATCH, Stage.INITIAL)
        yield _SEEN_BEFORE if everything else _BEFORE[parity["stage"]]


def _measured(words: str, relative: float | None, tensor: str) -> str:
    """A sentence. The first letter is capitalised unless it belongs to the name of a tensor or file."""
    text = f"{_sized(words, relative)}."
    return text if tensor and text.startswith(tensor) else text[:1].upper() + text[1:]


def _sized(words: str, relative: float | None) -> str:
    return words if relative is None else f"{words}; {relative:.2g} apart (relative L2)"


# ---------------------------------------------------------------- why


def _cause(parity: Parity) -> Iterator[str]:
    if parity.get("cause"):
        yield parity["cause"]
    candidates = parity.get("candidates") or ()
    confirmed = [each["why"] for each in candidates if each["outcome"] == Outcome.CONFIRMED and each["why"]]
    if confirmed and parity.get("confirmed"):
        yield f"Shown by: {confirmed[0]}."
    for each in candidates:
        if each["outcome"] == Outcome.PART:
            yield f"In part: {each['words']} ({each['why']})."
    follows = [each["words"] for each in candidates if each["outcome"] == Outcome.FOLLOWS]
    if follows:
        yield f"It also causes: {textwrap.shorten('; '.join(follows[:MOST]), 200, placeholder=' …')}."
    if parity.get("untried") and not any(each["outcome"] in _UNTRIED for each in candidates):
        yield parity["untried"]


def _listed(parity: Parity, outcome: str) -> Iterator[str]:
    """The candidates with this outcome, grouped by reason."""
    found = [each for each in parity.get("candidates") or () if each["outcome"] == outcome]
    by_reason = sorted(found[:MOST], key=lambda each: str(each["why"]))
    for why, group in groupby(by_reason, key=lambda each: str(each["why"])):
        words = "; ".join(textwrap.shorten(each["words"], 110, placeholder=" …") for each in group)
        yield f"{words} ({why})." if why else f"{words}."
    if len(found) > MOST:
        yield f"And {counted(len(found) - MOST, 'more candidate')}; --json lists all."


# ---------------------------------------------------------------- what follows


def _prognosis(parity: Parity) -> Iterator[str]:
    verdict, band = parity["verdict"], parity.get("band")
    if verdict == Conclusion.DIVERGENT:
        yield ("Fix this first: the two runs train different models, so their metrics cannot be compared.")
    if verdict == Conclusion.UNSTABLE:
        yield "Fix this first: runs of this script cannot be compared, not even on one machine."
    if verdict == Conclusion.EQUIVALENT and not band and parity.get("relative") is not None:
        yield "Rounding differences grow with every step: final metrics agree in their leading digits only."
    if band:
        yield from _rows(parity, band)


_NAMES: Mapping[str, str] = {
    Stage.ACTIVATION: "layer outputs",
    Stage.LOSS: "loss",
    Stage.GRADIENT: "gradients",
    Stage.UPDATE: "weights",
}


def _rows(parity: Parity, band: Mapping[str, Any]) -> Iterator[str]:
    """A table of the distance between the runs and the distance that rounding alone explains."""
    shown = [stage for stage, steps in band["drift"].items() if steps and band["limit"].get(stage)]
    shown = [stage for stage in shown if band["drift"][stage][-1] or band["limit"][stage][-1]]
    count = max((len(band["drift"][stage]) for stage in shown), default=0)
    after = f"after {counted(count, 'step')}"
    beyond = "more" if parity["verdict"] == Conclusion.EQUIVALENT else "BEYOND"
    yield f" {after:16}{'apart':>10}{'rounding alone':>18}   (relative L2)"
    for stage in shown:
        apart, limit = band["drift"][stage][-1], band["limit"][stage][-1]
        most, verb = f"up to {_number(limit)}", "within" if apart <= limit else beyond
        yield f" {_NAMES[stage]:16}{_number(apart):>10}{most:>18}   {verb}"
    flips = "; ".join(textwrap.shorten(each, 70, placeholder=" …") for each in band["flips"])
    yield f"Rounding alone was measured on this model here ({flips}), times {band['margin']:g}."
    if parity["verdict"] == Conclusion.EQUIVALENT:
        grown = [stage for stage in shown if band["drift"][stage][-1] > band["limit"][stage][-1]]
        more = "The difference started at the size of rounding and has grown beyond it. " if grown else ""
        yield f"{more}It grows with every step: final metrics agree in their leading digits only."


def _number(value: float) -> str:
    return f"{value:.1e}" if value else "0"
