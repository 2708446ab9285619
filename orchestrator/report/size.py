"""The output of `orch size`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.report.units import duration, money, size, table

COLUMNS = 100
"""The longest line, in characters."""

LEAST_READ = 1024
"""Fewer bytes read per batch are not reported: they are not training data."""


def size_text(sized: Mapping[str, Any]) -> str:
    """One screen: the measurement, formula and fit, minimums with reasons, and offers that fit."""
    parts = [_head(sized), _memory(sized), _input(sized), _minimums(sized), _offers(sized)]
    parts += [f"Note: {_note(note)}" for note in sized["notes"] if note["why"] != "began"]
    parts += sized["warnings"]
    parts += [f"Note: {sized['undeclared_words']}"] if sized.get("undeclared_words") else []
    return "\n".join(part for part in parts if part)


def _head(sized: Mapping[str, Any]) -> str:
    tried = ", ".join(map(str, sized["tried"]))
    own = "the program's own" if sized["batch"] == sized["own_batch"] else f"its own is {sized['own_batch']}"
    facts = [
        sized["optimizer"] or "no optimizer of Keras",
        sized["policy"],
        *(["XLA"] if sized["xla"] else []),
    ]
    return (
        f"A training step with a batch of {sized['batch']} ({own}); {', '.join(facts)}.\n"
        f"Measured on this {sized['device']} with batches of {tried}."
    )


def _memory(sized: Mapping[str, Any]) -> str:
    memory = sized["memory"]
    formula, fit = memory["formula"], memory["fit"]
    rows = [
        ["memory of a step", "", "at this batch"],
        ["  formula", _formula(formula), size(formula["total"])],
    ]
    if fit:
        rows.append(["  fit", _fit(fit), _range(fit["total"], size)])
    rows.append(["  process", "all that it holds in main memory", _range(memory["process"], size)])
    return table(rows, fit=COLUMNS)


def _formula(formula: Mapping[str, Any]) -> str:
    each = formula["activations"]
    activations = f"activations {size(each)} × batch" if each is not None else "activations unknown"
    return (
        f"weights {size(formula['weights'])} + gradients {size(formula['trainable'])} + "
        f"slots {size(formula['slots'])} + input {size(formula['batch'])} + {activations}"
    )


def _fit(fit: Mapping[str, Any]) -> str:
    intercept, slope = fit["intercept"]["value"], fit["slope"]
    return f"kept {size(fit['kept'])} + step {size(intercept)} + {_range(slope, size)} × batch"


def _range(estimate: Mapping[str, Any], show: Any) -> str:
    high = show(estimate["high"]) if estimate["high"] is not None else "?"
    return f"{show(estimate['value'])} ({show(estimate['low'])} … {high})"


def _input(sized: Mapping[str, Any]) -> str:
    step, given = sized["step"], sized["input"]
    if given["cpu"] is None:
        made = "the cost of preparing a batch could not be measured"
    else:
        made = f"preparing a batch takes {_seconds(given['cpu'])} of a core{_read(given['bytes_read'])}"
    return (
        f"Input: {made}.\n"
        f"A step here takes {_seconds(step['seconds'])}, and {_seconds(step['cpu'])} of cores."
    )


def _read(count: float) -> str:
    return f" and {size(count)} read" if count >= LEAST_READ else ""


def _seconds(value: float) -> str:
    return f"{value * 1000:.1f} ms" if value < 1 else duration(value)


def _minimums(sized: Mapping[str, Any]) -> str:
    rows = [["\nminimums", "", ""]]
    for each in sized["minimums"]:
        sure = "estimated: " if each["estimated"] else ""
        rows.append([f"  {each['key']}", each["text"], f"{sure}{each['reason']}"])
    text = table(rows, fit=COLUMNS)
    if sized["estimated"]:
        text += "\n  This computer has no GPU; GPU memory is estimated from the CPU's allocator."
    return f"{text}\n\nFor the profile:\n{sized['snippet'].rstrip()}"


def _offers(sized: Mapping[str, Any]) -> str:
    offers = sized["offers"]
    if not offers:
        return "\nNo recorded offer of a cloud fits these minimums."
    rows = [["\noffers that fit", "cloud", "region", "CPUs", "memory", "accelerator", "$/h"]]
    rows += [
        [
            f"  {offer['instance_type']}",
            offer["cloud"],
            offer["zone"] or offer["region"],
            str(offer["cpus"]),
            size(offer["memory"]),
            f"{offer['accelerator_count']} × {offer['accelerator']}" if offer["accelerator"] else "",
            money(offer["price"]),
        ]
        for offer in offers
    ]
    return table(rows, fit=COLUMNS)


def _note(note: Mapping[str, Any]) -> str:
    batch = note["batch"]
    if note["why"] == "time":
        return f"a batch of {batch} was not tried: it would have taken about {duration(note['seconds'])}."
    if note["why"] == "memory":
        return (
            f"a batch of {batch} was not tried: it needs about {size(note['bytes'])}, more than is free here."
        )
    return f"a batch of {batch} failed: {note['error']}: {note['detail']}"
