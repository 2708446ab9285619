"""Format the result of the model check for the screen after a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.model.counted import counted

_NAMED = 5

File = Mapping[str, Any]


def model_lines(check: Mapping[str, Any]) -> list[str]:
    """List failures first; then equal predictions, equal values, and files that were not checked."""
    files: Sequence[File] = check.get("files") or [check]
    wrong = [each for each in files if not each.get("not_checked") and not _same(each)]
    same = [each for each in files if not each.get("not_checked") and _same(each)]
    done = [each for each in same if each.get("predicted", True)]
    transformed = [each for each in done if each.get("method") == "transform"]
    predicted = [each for each in done if each.get("method") != "transform"]
    held = [each for each in same if not each.get("predicted", True)]
    lines = [_wrong(each) for each in wrong[:_NAMED]]
    if len(wrong) > _NAMED:
        lines.append(f"{len(wrong) - _NAMED:,} more are in run.json: model_check.files")
    lines += [_group(predicted, "predicts the same", "predict the same")] if predicted else []
    lines += [_group(transformed, "transforms the same", "transform the same")] if transformed else []
    lines += [_held(held)] if held else []
    return [*lines, *_not_checked([each for each in files if each.get("not_checked")])]


def _same(file: File) -> bool:
    return bool(file.get("loaded") and file.get("equal"))


def _path(file: File) -> str:
    return str(file.get("path", "the model"))


def _wrong(file: File) -> str:
    way_out = f". {file['way_out']}" if file.get("way_out") else ""
    return f"{_path(file)}: {file.get('reason') or 'could not be checked'}{way_out}"


def _group(files: Sequence[File], one: str, many: str) -> str:
    if len(files) == 1:
        return f"{_path(files[0])} loads here and {one}"
    return f"{counted(len(files), 'file')} load here and {many}: {_few(files)}"


def _held(files: Sequence[File]) -> str:
    """Files with values only: whether the values are equal, and whether they are finite."""
    said = _group(files, "holds the same values", "hold the same values")
    values = sum(each.get("values") or 0 for each in files)
    if not values:
        return said
    odd = [each for each in files if each.get("not_finite")]
    held = f"{said} ({values:,} in {counted(sum(each.get('arrays') or 0 for each in files), 'array')}"
    if not odd:
        known = any(each.get("not_finite") is not None for each in files)
        return f"{held}, all finite)" if known else f"{held})"
    lost = sum(each["not_finite"] for each in odd)
    return f"{held}); {lost:,} infinite or NaN, in {_few(odd)}"


def _not_checked(files: Sequence[File]) -> list[str]:
    """One line per reason, with its files."""
    by_reason: dict[tuple[str, str], list[File]] = {}
    for each in files:
        reason = str(each.get("reason") or "not checked")
        by_reason.setdefault((reason, str(each.get("way_out") or "")), []).append(each)
    return [
        f"{_few(each)}: {reason}. Its bytes are the machine's, verified. {way_out}".rstrip()
        if len(each) == 1
        else f"{_few(each)}: {reason}. Their bytes are the machine's, verified. {way_out}".rstrip()
        for (reason, way_out), each in by_reason.items()
    ]


def _few(files: Sequence[File]) -> str:
    more = f" and {len(files) - _NAMED:,} more" if len(files) > _NAMED else ""
    return ", ".join(_path(each) for each in files[:_NAMED]) + more
