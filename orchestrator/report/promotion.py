"""The output of `orch models`, and the line about the gate in the summary of a run."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.model.acceptance import MODELS
from orchestrator.model.plain import plain

COLUMNS = 100
_METRICS = 4
_SHOWN = 10
_NO_MODEL = (
    "No model was accepted in this project yet.\n"
    'Next: add a gate to the profile, such as accept: {metrics: {accuracy: ">= 0.95"}}, then: orch train'
)


def models_text(models: Sequence[Mapping[str, Any]]) -> str:
    """Return a block for each model: the current run, and the promotions, newest first."""
    return "\n\n".join(_block(each) for each in models) if models else _NO_MODEL


def rollback_text(model: Mapping[str, Any]) -> str:
    newest = model["promotions"][0]
    return f"{model['link']} is {model['current']} now, accepted first with {_metrics(newest['metrics'])}."


def gate_line(acceptance: Mapping[str, Any] | None, refused: str) -> str:
    """Return the gate's result in one line; "" for a run without one. `refused`: the reasons."""
    if not acceptance:
        return ""
    link = f"{MODELS}/{plain(str(acceptance.get('model')))}"
    if not acceptance.get("accepted"):
        return f"not accepted: {refused}"
    before = acceptance.get("compared_with")
    return f"accepted as {link}, " + (f"in place of {plain(str(before))}" if before else "the first")


def _block(model: Mapping[str, Any]) -> str:
    store = f", kept in {model['store']}" if model["store"] else ""
    lines = [f"{model['link']} is {model['current']}{store}"]
    if model["stale"]:
        lines.append(f"  Its store was not read now, and this is the last copy here: {model['stale']}")
    promotions = model["promotions"]
    width = max(len(each["run_id"]) for each in promotions[:_SHOWN])
    for each in promotions[:_SHOWN]:
        when = time.strftime("%Y-%m-%d %H:%M", time.gmtime(each["at"]))
        gone = "" if each["here"] else ", its files are not here"
        text = f"{when}  {each['how']:<8}  {each['run_id'].ljust(width)}  {_metrics(each['metrics'])}{gone}"
        lines += textwrap.wrap(text, COLUMNS, initial_indent="  ", subsequent_indent=" " * 30)
    if len(promotions) > _SHOWN:
        lines.append(f"  and {len(promotions) - _SHOWN} older ones: orch models --json")
    return "\n".join(lines)


def _metrics(metrics: Mapping[str, float]) -> str:
    shown = list(metrics.items())[:_METRICS]
    return ", ".join(f"{plain(name)[:24]} {value:.4g}" for name, value in shown) or "no metrics"
