"""The verdict on two runs as a letter: finding, what was ruled out, diagnosis, treatment, prognosis."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrator.report.run import parity_line
from orchestrator.report.units import plural

WIDTH = 100
"""Columns."""

MOST = 5
"""Lines of what was ruled out, and of what was not tried."""

_HEADS = {
    "EQUIVALENT": "the runs differ by rounding only",
    "DIVERGENT": "the runs are not the same",
    "UNSTABLE": "the script differs from itself on one machine",
}
_STAGES = {
    "steps": "the number of steps",
    "files": "the files that are read",
    "batch": "the batch",
    "initial": "the initial weights",
    "activation": "a layer's output",
    "loss": "the loss",
    "gradient": "a gradient",
    "update": "the updated weights",
    "metrics": "a metric",
}


def letter(parity: Mapping[str, Any]) -> str:
    """The verdict on one screen, `parity` as in run.json."""
    head = _HEADS.get(parity["verdict"])
    if head is None or not parity.get("stage"):
        return "\n".join(textwrap.wrap(parity_line(parity), WIDTH))
    parts = (
        ("Finding", _finding(parity)),
        ("Ruled out", _listed(parity, ("cleared",))),
        ("Not tried", _listed(parity, ("not tried",))),
        ("Diagnosis", _diagnosis(parity)),
        ("Treatment", filter(None, [parity.get("fix")])),
        ("Prognosis", _prognosis(parity)),
    )
    lines = [f"{parity['verdict']}: {head}", ""]
    for name, texts in parts:
        lines += _part(name, list(texts))
    return "\n".join(lines)


def _part(name: str, texts: Sequence[str]) -> list[str]:
    """`name` in the margin of its first line; nothing where there is nothing to say."""
    margin = " " * 12
    wrapped = [
        line for text in texts for line in textwrap.wrap(text, WIDTH - len(margin), break_on_hyphens=False)
    ]
    return [(name.ljust(12) if i == 0 else margin) + line for i, line in enumerate(wrapped)]


def _finding(parity: Mapping[str, Any]) -> Iterator[str]:
    where = f"{_STAGES.get(parity['stage'], parity['stage'])}: {parity['tensor']}".rstrip(": ")
    size = f", {parity['relative']:.2g} apart (relative L2)" if parity.get("relative") is not None else ""
    yield f"Step {parity['step']}, {where}{size}."
    if parity.get("difference"):
        yield parity["difference"][:1].upper() + parity["difference"][1:] + "."
    if parity["verdict"] != "UNSTABLE" and parity["stage"] not in ("files", "steps"):
        yield "Everything before it is equal to the bit."


def _listed(parity: Mapping[str, Any], outcomes: Sequence[str]) -> Iterator[str]:
    found = [each for each in parity.get("candidates") or () if each["outcome"] in outcomes]
    for each in found[:MOST]:
        yield f"{each['words']} ({each['why']})" if each["why"] else each["words"]
    if len(found) > MOST:
        yield f"and {plural(len(found) - MOST, 'other thing')}"


def _diagnosis(parity: Mapping[str, Any]) -> Iterator[str]:
    if parity.get("cause"):
        yield parity["cause"]
    for each in parity.get("candidates") or ():
        if each["outcome"] == "part":
            yield f"{each['words']}: {each['why']}."
    if parity.get("untried") and not any(c["outcome"] == "not tried" for c in parity.get("candidates") or ()):
        yield parity["untried"]


def _prognosis(parity: Mapping[str, Any]) -> Iterator[str]:
    band = parity.get("band")
    if not band:
        return
    flips = ", ".join(band["flips"])
    apart = "; ".join(
        f"{_NAMES[stage]} {_number(steps[-1])} of {_number(band['limit'][stage][-1])}"
        for stage, steps in band["drift"].items()
        if stage in band["limit"] and steps
    )
    count = max((len(steps) for steps in band["drift"].values()), default=0)
    yield (
        f"Rounding alone moves this model as far as this (measured: {flips}; times {band['margin']:g}). "
        f"After {plural(count, 'step')} the runs use: {apart} (relative L2)."
    )


_NAMES = {"activation": "outputs", "loss": "loss", "gradient": "gradients", "update": "weights"}


def _number(value: float) -> str:
    return f"{value:.1e}" if value else "0"
