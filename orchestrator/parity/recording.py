"""What one run recorded, read back: <run>/observe/ as values. Reads files, changes none."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FORMAT = 1
"""The version of recordings that this reads."""

STAGES = ("files", "batch", "initial", "activation", "loss", "gradient", "update", "metrics")
"""The ladder: an earlier stage explains all later ones. No tensor is of the first, see opened."""


@dataclass(frozen=True)
class Tensor:
    """One recorded tensor. `file` holds its bits, or `sample` every `stride`-th element; either may lack."""

    stage: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    sha256: str
    norm: float | None = None
    file: Path | None = None
    sample: Path | None = None
    stride: int = 1

    def equals(self, other: Tensor) -> bool:
        """Equal to the bit, dtype and shape included."""
        return (self.dtype, self.shape, self.sha256) == (other.dtype, other.shape, other.sha256)


@dataclass(frozen=True)
class Records:
    """The records of one batch: how many, hashed in order, as a multiset, and one by one (shortened)."""

    count: int
    ordered: str
    multiset: int
    rows: tuple[str, ...] = ()


@dataclass(frozen=True)
class Step:
    """One complete training step. `unread` names what could not be read without changing the numbers."""

    number: int
    tensors: tuple[Tensor, ...]
    records: Mapping[str, Records] = field(default_factory=dict)
    unread: frozenset[str] = frozenset()

    def stage(self, name: str) -> dict[str, Tensor]:
        """The tensors of a stage by name, in the order of the program."""
        return {tensor.name: tensor for tensor in self.tensors if tensor.stage == name}


@dataclass(frozen=True)
class LightStep:
    """A step of which only fingerprints were taken: (stage, name) → exact sum of its bits, in the order of
    the ladder, and a norm that tells the size of a difference (None: not a number)."""

    number: int
    sums: Mapping[tuple[str, str], str]
    norms: Mapping[tuple[str, str], float | None]


@dataclass(frozen=True)
class Recording:
    """A run's recording. `why` says, where nothing was recorded, what is known of the reason.

    `light` are the steps after `steps`, fingerprinted; `imposed` what of another run was given to this one.
    """

    steps: tuple[Step, ...]
    requested: int = 0
    environment: Mapping[str, Any] = field(default_factory=dict)
    not_compared: tuple[str, ...] = ()
    failure: str | None = None
    why: str = ""
    light: tuple[LightStep, ...] = ()
    imposed: Mapping[str, Any] = field(default_factory=dict)


def read(run: Path) -> Recording:
    """The recording in `run`/observe. A torn last line is dropped; an absent file is a reason."""
    folder = run / "observe"
    status = read_object(folder / "status.json")
    lines, unreadable = _lines(folder / "steps.jsonl")
    steps = _steps(lines, folder)
    notes = tuple(
        f"{note.get('what', '?')}: {note.get('why', '?')}" for note in status.get("not_compared", []) if note
    )
    failure = _failure(run)
    why = "" if steps else unreadable or _why(folder, status, notes, failure)
    return Recording(
        steps=steps,
        requested=int(status.get("requested", 0)),
        environment=read_object(folder / "environment.json"),
        not_compared=notes,
        failure=failure,
        why=why,
        light=_light(lines),
        imposed=status.get("imposed") or {},
    )


def _steps(lines: Sequence[Mapping[str, Any]], folder: Path) -> tuple[Step, ...]:
    """The full steps, each with the metrics that were reported after it."""
    metrics: dict[int, list[Mapping[str, Any]]] = {}
    for line in lines:
        if line.get("event") == "metrics":
            metrics.setdefault(int(line["step"]), []).extend(line["tensors"])
    full = (line for line in lines if line.get("event") == "step")
    return tuple(_step(line, folder, metrics.get(int(line["step"]), [])) for line in full)


def _light(lines: Sequence[Mapping[str, Any]]) -> tuple[LightStep, ...]:
    names: list[tuple[str, str]] = []
    found = []
    for line in lines:
        if line.get("event") == "light-names":
            names = [(stage, name) for stage, name in line["names"]]
        elif line.get("event") == "light":
            sums, norms = (
                dict(zip(names, line["sums"], strict=True)),
                dict(zip(names, line["norms"], strict=True)),
            )
            found.append(LightStep(int(line["step"]), sums, norms))
    return tuple(found)


def _lines(path: Path) -> tuple[list[dict[str, Any]], str]:
    found: list[dict[str, Any]] = []
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        return [], ""
    for line in text.splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            break  # torn by a kill or a full disk: what follows has no meaning
        if value.get("v") != FORMAT:
            return (
                [],
                f"it was recorded in format {value.get('v')}, and this version of orch reads format {FORMAT}",
            )
        found.append(value)
    return found, ""


def _step(line: Mapping[str, Any], folder: Path, metrics: Sequence[Mapping[str, Any]]) -> Step:
    return Step(
        number=int(line["step"]),
        tensors=tuple(_tensor(item, folder) for item in (*line["tensors"], *metrics)),
        records={
            name: Records(r["count"], r["ordered"], int(r["multiset"], 16), tuple(r["rows"]))
            for name, r in line.get("records", {}).items()
        },
        unread=frozenset(line.get("unread", [])),
    )


def _tensor(item: Mapping[str, Any], folder: Path) -> Tensor:
    sample = item.get("sample") or {}
    return Tensor(
        stage=item["stage"],
        name=item["name"],
        dtype=item["dtype"],
        shape=tuple(item["shape"]),
        sha256=item["sha256"],
        norm=item.get("l2"),
        file=folder / item["file"] if item.get("file") else None,
        sample=folder / sample["file"] if sample else None,
        stride=int(sample.get("stride", 1)),
    )


def _failure(run: Path) -> str | None:
    """How the run failed, None where it did not, or nobody says."""
    end = read_object(run / "exit.json")
    reason = str(end.get("reason", ""))
    if not reason or reason in ("completed", "observed"):
        return None
    return f"{reason} ({end['detail']})" if end.get("detail") else reason


def _why(folder: Path, status: Mapping[str, Any], notes: tuple[str, ...], failure: str | None) -> str:
    if notes:
        return "; ".join(notes)
    if failure:
        return f"the run ended before its first step was complete: {failure}"
    if status:
        return (
            "TensorFlow was imported, but no optimizer updated any weight "
            "(only Keras optimizers are watched, not hand-written updates)"
        )
    if folder.is_dir():
        return (
            "the program imported neither TensorFlow nor Keras, or its Python ignores PYTHONPATH (-I, -E, -S)"
        )
    return "it was not recorded (there is no observe folder)"


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty where there is none, or something else."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
