"""Loss and metrics over a training, read from a run's own files and its output."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.model import Artifact
from orchestrator.model.answers import Malformed, parsed
from orchestrator.model.files import last_bytes, regular_bytes
from orchestrator.model.plain import plain

MOST_POINTS = 2_000
"""Most points of a curve: longer ones are thinned."""
MOST_CURVES = 40
_MOST_BYTES = 1 << 25
"""Bytes that are read of a file of metrics, and of the end of an output."""
_MOST_LINES = 200_000
_LONGEST_LINE = 1_000
_LONGEST_NAME = 60
_LONGEST_OBJECT = 1 << 16

_AXES = ("epoch", "step", "global_step", "iteration", "iter", "batch")
_NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|inf|NaN|Infinity)"
_NAME = r"""(?<![\w/.@-])["']?([A-Za-z_][\w/.@-]{0,60})["']?"""
_PAIR = re.compile(_NAME + rf"\s{{0,3}}[:=]\s{{0,3}}({_NUMBER})(?![\w:/])")
_BARE = re.compile(
    rf"\b((?:[A-Za-z]{{1,12}}[_/-])?(?:loss|acc|accuracy|lr|mae|mse|rmse|auc|f1|ppl))\s+({_NUMBER})(?![\w:/])",
    re.I,
)
_DIGIT = re.compile(r"\d")
_HEAD = re.compile(r"\b([Ee]poch|[Ss]tep|[Ii]ter(?:ation)?)[ #:=\[]{0,4}(\d{1,9})(?:\s*/\s*(\d{1,9}))?")
_PROGRESS = re.compile(r"^\s*(\d{1,9})/(\d{1,9})\s")
_WORTH = re.compile(
    r"loss|acc|auc|error|mae|mse|rmse|f1|precision|recall|perplexity|ppl|bleu|iou|dice|score|lr|rate|norm|reward|metric|r2",
    re.I,
)


_OF_THE_MACHINE = re.compile(
    r"(?<![a-z])(gpu|cpu|memory|mem|speed|throughput)(?![a-z])|(?<![a-z])(time|secs?|seconds|s|ms|duration|elapsed|eta)$",
    re.I,
)
"""Names of times, speeds and memory: a word of the name, or its last word."""


@dataclass
class Curve:
    """One number over `axis` (epoch, step …). `ys` may hold NaN: the training wrote NaN or infinity."""

    name: str
    axis: str
    xs: list[float] = field(default_factory=list)
    ys: list[float] = field(default_factory=list)

    def add(self, x: float, y: float) -> None:
        """Add a point. A later value at the same place replaces the earlier one, as in a progress line."""
        if self.xs and self.xs[-1] == x:
            self.ys[-1] = y
            return
        self.xs.append(x)
        self.ys.append(y)


def curves_of(folder: Path, artifacts: Iterable[Artifact], log: Path) -> tuple[Curve, ...]:
    """Return the curves of a run: from its files of metrics if it left any, else from its output."""
    from_files = _of_files(folder, artifacts)
    found = from_files or _of_text(_text(log))
    told = [_thinned(curve) for curve in found.values() if len(curve.xs) > 1]
    return tuple(told[:MOST_CURVES])


def last_values(folder: Path, artifacts: Iterable[Artifact], log: Path) -> dict[str, float]:
    """Return the last value of each loss and metric in a run's file of metrics over time; without one, the
    numbers of the JSON object that is the last line of its output.

    Times, speeds and memory are left out: they differ from run to run.
    """
    over_time = _of_files(folder, artifacts).values()
    found = {curve.name: curve.ys[-1] for curve in over_time if _WORTH.search(curve.name)}
    found = found or _printed_last(log)
    return {name: value for name, value in found.items() if not _OF_THE_MACHINE.search(name)}


def _printed_last(log: Path) -> dict[str, float]:
    """Return the numbers in the last line of an output, if that is a JSON object."""
    lines = last_bytes(log, _LONGEST_OBJECT).decode("utf-8", "replace").rstrip().splitlines()
    with suppress(ValueError, RecursionError):
        said = json.loads(lines[-1]) if lines else None
        if isinstance(said, dict):
            numbers = {name: _number(each) for name, each in said.items() if not isinstance(each, str)}
            return {name: each for name, each in numbers.items() if each is not None}
    return {}


def curves_of_text(text: str) -> tuple[Curve, ...]:
    """Return the curves in an output."""
    return tuple(_thinned(curve) for curve in _of_text(text).values() if len(curve.xs) > 1)[:MOST_CURVES]


def _text(log: Path) -> str:
    return last_bytes(log, _MOST_BYTES).decode("utf-8", "replace")


# ---------------------------------------------------------------- files


def _of_files(folder: Path, artifacts: Iterable[Artifact]) -> dict[str, Curve]:
    """Return the curves in the first file of metrics over time: a CSV of Keras' CSVLogger, JSON lines, or
    JSON like `History.history`.
    """
    for each in artifacts:
        name = str(each.get("path", ""))
        path = folder / name
        if ".." in Path(name).parts or each.get("bytes", 0) > _MOST_BYTES:
            continue
        with suppress(OSError, ValueError, RecursionError):
            found = _of_file(path)
            if any(len(curve.xs) > 1 for curve in found.values()):
                return found
    return {}


def _of_file(path: Path) -> dict[str, Curve]:
    name = path.name.lower()
    if name.endswith((".csv", ".tsv", ".log")) and any(
        word in name for word in ("hist", "train", "metric", "log")
    ):
        return _of_csv(regular_bytes(path, _MOST_BYTES).decode("utf-8", "replace"))
    if name.endswith(".jsonl"):
        return _of_rows(_json_lines(regular_bytes(path, _MOST_BYTES)))
    if name.endswith(".json") and "hist" in name:
        return _of_history(parsed(regular_bytes(path, _MOST_BYTES), most=_MOST_BYTES, constants=True))
    return {}


def _of_csv(text: str) -> dict[str, Curve]:
    if "\n" not in text:
        return {}
    rows = csv.DictReader(
        io.StringIO(text[:_MOST_BYTES]), dialect="excel-tab" if "\t" in text.partition("\n")[0] else "excel"
    )
    try:
        return _of_rows(dict(row) for row, _ in zip(rows, range(_MOST_LINES), strict=False))
    except csv.Error as error:
        raise Malformed(str(error)) from None


def _json_lines(data: bytes) -> Iterator[Mapping[str, Any]]:
    for line, _ in zip(data.splitlines(), range(_MOST_LINES), strict=False):
        with suppress(ValueError, RecursionError):
            found = json.loads(line)
            if isinstance(found, dict):
                yield found


def _of_rows(rows: Iterable[Mapping[Any, Any]]) -> dict[str, Curve]:
    curves: dict[str, Curve] = {}
    for place, row in enumerate(rows):
        numbers = {str(key): value for key, each in row.items() if (value := _number(each)) is not None}
        axis = next((name for name in _AXES if name in numbers), "row")
        _add(curves, axis, numbers.pop(axis, float(place)), numbers)
    return curves


def _of_history(found: Any) -> dict[str, Curve]:
    """Return the curves in a mapping of lists of numbers, such as `History.history` of Keras."""
    if not isinstance(found, dict):
        return {}
    found = found.get("history") if isinstance(found.get("history"), dict) else found
    curves: dict[str, Curve] = {}
    for key, values in found.items():
        if isinstance(values, list) and values:
            for place, each in enumerate(values[: 100 * MOST_POINTS], 1):
                value = _number(each)
                if value is not None:
                    _add(curves, "epoch", float(place), {str(key): value})
    return curves


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if not math.isinf(found) else math.nan


# ---------------------------------------------------------------- what was printed


def _of_text(text: str) -> dict[str, Curve]:
    """Return the curves in lines like those of Keras, Lightning, Hugging Face and most scripts: numbers
    by epoch or step.
    """
    curves: dict[str, Curve] = {}
    place: tuple[str, float] | None = None
    for number, line in enumerate(_lines(text)):
        if not _DIGIT.search(line):
            continue
        numbers = dict(_pairs(line))
        wanted = dict(_metrics(numbers))
        head, own = _HEAD.search(line), next((name for name in _AXES if name in numbers), None)
        here = (_axis(own), numbers[own]) if own else (_axis(head[1]), float(head[2])) if head else place
        if wanted:
            axis, at = here or (_NOWHERE, float(number))
            _add(curves, axis, at, wanted)
        if (head or own) and not wanted:
            place = here
        elif head or own or _is_whole(line):
            place = None  # what follows, such as a final evaluation, belongs to no epoch
    return _of_one_axis(curves)


_NOWHERE = "line"


def _is_whole(line: str) -> bool:
    """Return whether it is the last line of a progress bar, like "45/45 - 1s - loss: 0.1"."""
    found = _PROGRESS.match(line)
    return bool(found and found[1] == found[2])


def _of_one_axis(curves: Mapping[str, Curve]) -> dict[str, Curve]:
    """Return the curves by epoch or step, if there are any; else all of them."""
    placed = {key: curve for key, curve in curves.items() if curve.axis != _NOWHERE}
    return placed or dict(curves)


@dataclass(frozen=True)
class OutputLine:
    """What one line of output says: `axis` (epoch or step), its number `at`, the total `of`, and metrics."""

    axis: str | None = None
    at: int | None = None
    of: int | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)


def read_line(line: str) -> OutputLine:
    """Read a line, without its end, as `curves_of_text` does."""
    (text,) = list(_lines(line.replace("\n", " ")))[-1:]
    head = _HEAD.search(text)
    metrics = {plain(name)[:_LONGEST_NAME]: value for name, value in _metrics(dict(_pairs(text)))}
    if head is None:
        return OutputLine(metrics=metrics)
    return OutputLine(_axis(head[1]), int(head[2]), int(head[3]) if head[3] else None, metrics)


def _metrics(numbers: Mapping[str, float]) -> list[tuple[str, float]]:
    return [
        (name, value) for name, value in numbers.items() if name.lower() not in _AXES and _WORTH.search(name)
    ]


def _lines(text: str) -> Iterator[str]:
    for number, line in enumerate(text.split("\n")):
        if number > _MOST_LINES:
            return
        last = line.rstrip("\r").rpartition("\r")[2]  # the last state of a progress bar
        yield plain(last[-_LONGEST_LINE:].rpartition("\b")[2])


def _axis(word: str) -> str:
    return "epoch" if word.lower() == "epoch" else "step"


def _pairs(line: str) -> Iterator[tuple[str, float]]:
    for found in (*_BARE.finditer(line), *_PAIR.finditer(line)):
        value = _number(found[2])
        if value is not None:
            yield found[1], value


def _add(curves: dict[str, Curve], axis: str, at: float, numbers: Mapping[str, float]) -> None:
    for name, value in numbers.items():
        shown = plain(name)[:_LONGEST_NAME]
        curve = curves.get(f"{axis} {shown}")
        if curve is None:
            if len(curves) >= 4 * MOST_CURVES:
                continue
            curve = curves[f"{axis} {shown}"] = Curve(shown, axis)
        if not math.isnan(at) and not (curve.xs and at < curve.xs[-1]):
            curve.add(at, value)


def _thinned(curve: Curve) -> Curve:
    """Return every n-th point, and the last."""
    stride = -(-len(curve.xs) // MOST_POINTS)
    if stride <= 1:
        return curve

    def kept(values: Sequence[float]) -> list[float]:
        return [*values[:-1][::stride], values[-1]]

    return Curve(curve.name, curve.axis, kept(curve.xs), kept(curve.ys))
