"""After a run: does what it saved load here, and do as it did there? Models, weights, scalers, and so on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.model import Agent, Entry, Host
from orchestrator.runtime.modelcheck.select import checkable

_TIMEOUT = 600.0
"""Seconds for all files of one side; one import of the framework is most of it."""


@dataclass(frozen=True)
class Side:
    """A computer with the stack's own interpreter (of `agent`), the run's `outputs` and its `code` there."""

    host: Host
    agent: Agent
    outputs: str
    code: str


def check(there: Side, here: Side, entries: Sequence[Entry], folder: Path) -> dict[str, Any] | None:
    """One answer for all: path, loaded, equal, reason, way_out of the worst, and `files` with each.

    None where the run left nothing of the kind. What the machine found is kept in `folder`.
    """
    names = checkable(entry.path for entry in entries if entry.kind == "file")
    if not names:
        return None
    found = _results(there, names, None)
    expected = folder / "model-check.json"
    expected.write_text(json.dumps({"v": 1, "results": found}))
    ours = _results(here, names, expected)
    answers = [_answer(*each) for each in zip(names, found, ours, strict=True)]
    worst = min(answers, key=_rank)
    kept = ("path", "loaded", "equal", "reason", "way_out")
    return {**{key: worst[key] for key in kept}, "files": answers}


def _rank(answer: Mapping[str, Any]) -> tuple[bool, bool, bool]:
    """Worst first; of equals the first file, which is a whole model where there is one."""
    return answer["loaded"], answer["equivalent"] is not False, bool(answer["equal"])


def _results(side: Side, names: Sequence[str], expected: Path | None) -> list[dict[str, Any]]:
    """The check of every file on one side. Where all at once end without an answer, each by itself."""
    options = ("--folder", side.code, *(("--expect", str(expected)) if expected else ()))
    argv = side.agent.argv("check-model", *(f"{side.outputs}/{name}" for name in names), *options)
    done = side.host.run(argv, timeout=_TIMEOUT)
    value = _json(done.stdout)
    results = value.get("results", [value]) if value else []
    if len(results) == len(names):
        return list(results)
    if len(names) > 1:
        return [_alone(side, names, place, expected) for place in range(len(names))]
    tail = done.stderr.decode(errors="replace").strip().splitlines()[-3:]
    return [_failed(f"the check itself ended with {done.returncode}: {' '.join(tail)}")]


def _alone(side: Side, names: Sequence[str], place: int, expected: Path | None) -> dict[str, Any]:
    """The check of one file, compared with its own earlier result."""
    if expected is None:
        return _results(side, [names[place]], None)[0]
    own = expected.with_name("model-check-one.json")
    own.write_text(json.dumps(json.loads(expected.read_text())["results"][place]))
    try:
        return _results(side, [names[place]], own)[0]
    finally:
        own.unlink()


def _failed(reason: str) -> dict[str, Any]:
    return {"loaded": False, "reason": reason, "way_out": "orch pull again; with less running beside it."}


def _json(text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _answer(path: str, there: Mapping[str, Any], here: Mapping[str, Any]) -> dict[str, Any]:
    loaded = bool(here.get("loaded"))
    both = loaded and bool(there.get("loaded"))
    reason = here.get("reason")
    if not there.get("loaded"):
        reason = f"it did not load on the machine either: {there.get('reason')}" if not loaded else reason
    return {
        "path": path,
        "kind": here.get("kind"),
        "loaded": loaded,
        "equal": bool(here.get("equal")) if both else None,
        "equivalent": bool(here.get("equivalent")) if both else None,
        "reason": reason,
        "way_out": here.get("way_out"),
        "note": here.get("note"),
    }
