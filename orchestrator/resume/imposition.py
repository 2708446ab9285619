"""Record what the uninterrupted run had at the point of resumption, to restore it in another run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from orchestrator.model.outcomes import Stage
from orchestrator.model.resume import Lost, Omission
from orchestrator.parity.recording import FORMAT, Recording, Tensor
from orchestrator.resume.judge import state_after

_SET_BETWEEN = frozenset((Lost.LEARNING_RATE,))


def keep_batches(whole: Recording, after: int, folder: Path) -> bool:
    """Write the batches that follow a step to `folder`. Returns whether they are complete."""
    steps = whole.steps[after:]
    lines = [_line(n, Stage.BATCH, step.stage(Stage.BATCH)) for n, step in enumerate(steps, 1)]
    tensors = [tensor for step in steps for tensor in step.stage(Stage.BATCH).values()]
    return bool(lines) and _write(folder, lines, tensors)


def keep_variables(whole: Recording, after: int, omissions: Iterable[Omission], folder: Path) -> bool:
    """Write the variables of some omissions, as the step after `after` found them. Returns whether they are
    complete.

    Most variables are as the step before left them. A variable that the job sets between two steps is taken
    from the later one, whose update does not change it.
    """
    wanted = {name: each.lost in _SET_BETWEEN for each in omissions for name in each.names}
    then, later = state_after(whole, after), state_after(whole, after + 1)
    found = {name: (later if between else then).get(name) for name, between in wanted.items()}
    tensors = {name: each for name, each in found.items() if each is not None}
    return len(tensors) == len(wanted) and _write(
        folder, [_line(1, Stage.INITIAL, tensors)], list(tensors.values())
    )


def _line(number: int, stage: Stage, tensors: dict[str, Tensor]) -> dict[str, Any]:
    listed = [
        {
            "stage": str(stage),
            "name": name,
            "dtype": each.dtype,
            "shape": list(each.shape),
            "sha256": each.sha256,
            "file": str(each.file or ""),
        }
        for name, each in tensors.items()
    ]
    return {"v": FORMAT, "event": "step", "step": number, "records": {}, "unread": [], "tensors": listed}


def _write(folder: Path, lines: Sequence[dict[str, Any]], tensors: Sequence[Tensor]) -> bool:
    if any(each.file is None for each in tensors):
        return False
    folder.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "steps.jsonl").write_text(text, encoding="utf-8")
    return True
