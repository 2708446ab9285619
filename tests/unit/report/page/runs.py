"""Records and files of runs for the tests of the page."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrator.model import RunRecord
from orchestrator.runs.details import RunDetails, read_details

START = 1_790_000_000.0

HOSTILE = (
    "\"><script>alert(1)</script><img src=x onerror=alert(2)>'`{{7*7}}\u202e\x1b]0;t\x07\x00</style></title>"
)
"""What a machine may write that wants to act in a reader's browser."""

DIFFERENCE = {
    "kind": "package",
    "name": "numpy",
    "here": "2.1.0",
    "there": "2.2.0",
    "declared": False,
    "reason": "",
}


def record(**changed: Any) -> RunRecord:
    """A run that trained on a machine, with every part of a record."""
    facts: dict[str, Any] = {
        "run_id": "digits-1",
        "path": "/project/runs/digits-1",
        "exit": {
            "code": 0,
            "signal": None,
            "reason": "completed",
            "detail": "The command ended with status 0.",
        },
        "command": ["python", "train.py", "--data", "data"],
        "code": {"digest": "c" * 64, "files": 9},
        "parity": {
            "verdict": "IDENTICAL",
            "steps": 3,
            "compared": 174,
            "summary": "All 174 tensors are equal to the bit.",
            "stage": None,
            "step": None,
            "cause": None,
            "confirmed": False,
        },
        "stack": {
            "digest": "5" * 64,
            "python": "3.11.7",
            "packages": 38,
            "lock": "1" * 64,
            "differences": [
                {**DIFFERENCE, "declared": True, "name": "LANG", "reason": "it changes text only"}
            ],
        },
        "data": {"digest": "0" * 64, "files": 10, "bytes": 203_000},
        "metrics": {"accuracy": 0.98888, "loss": 0.0397},
        "profile": {
            "steps": 540,
            "steps_per_s": 143.9,
            "input_wait": 0.07,
            "train_s": 3.9,
            "wall_s": 12.0,
            "limited_by": "cpu",
            "because": "The cores were busy.",
            "bytes_read": 73_600_000,
            "peak_memory": 746_000_000,
            "cores": 2,
            "cpu_utilisation": 0.9,
        },
        "artifacts": [{"path": "outputs/out/model.keras", "sha256": "9" * 64, "bytes": 1_258_291}],
        "model_check": {
            "files": [{"path": "out/model.keras", "loaded": True, "equal": True, "reason": None}]
        },
        "machine": {"provider": "aws", "id": "i-1", "instance_type": "g5.xlarge", "zone": "us-east-1a"},
        "cost": {"usd": 1.87, "price_usd_hour": 1.006, "seconds": 6700.0, "run_usd": 1.87, "lease_usd": 2.1},
        "timings": {"train_s": 12.0, "pull_s": 1.0, "model_check_s": 3.0},
        "attempts": [{"number": 1, "reason": "completed", "started_at": START, "ended_at": START + 12.0}],
    }
    return RunRecord(**{**facts, **changed})


def details(**changed: Any) -> RunDetails:
    """The same, without files."""
    return RunDetails(record(**changed))


def trace_lines(*, waited: float = 0.2, gpus: bool = False) -> list[dict[str, Any]]:
    """Twelve seconds: four of start-up, six of training, `waited` of each for input, two idle."""
    lines: list[dict[str, Any]] = [
        {
            "event": "header",
            "version": 1,
            "t": START,
            "cores": 2,
            "memory": 4 << 30,
            "memory_is_a_limit": True,
        }
    ]
    cpu = 0.0
    for second in range(1, 13):
        cpu += 1.0 if second <= 10 else 0.0
        sample = {
            "event": "sample",
            "t": START + second,
            "up": float(second),
            "cpu_user": cpu,
            "cpu_system": 0.0,
            "waited": 0.0,
            "rss": second << 26,
            "read": second << 20,
            "written": 0,
            "received": 100 * second,
            "sent": 0,
        }
        if gpus:
            sample["gpus"] = [
                {"utilisation": 0.5 if second > 4 else 0.0, "memory": 1 << 30, "memory_total": 1 << 34}
            ]
        lines.append(sample)
    first = {"event": "first_step", "source": "fit", "n": 1, "total": 1, "wall": 0.5}
    lines.append({"t": START + 4.5, "pid": 7, **first})
    lines += [
        {
            "t": START + 4.5 + second,
            "pid": 7,
            "event": "steps",
            "source": "fit",
            "n": 10,
            "total": 1 + 10 * second,
            "calls": 10,
            "wall": 0.9,
            "period_p50": 0.1,
            "gap_p50": 0.01,
            "probed": 5,
            "probed_wall": 0.45,
            "wait": 0.45 * waited / 0.9,
            "opening": 0.0,
            "opened": 0,
        }
        for second in range(1, 7)
    ]
    return lines


LOG = """Epoch 1/3
45/45 - 2s - 44ms/step - accuracy: 0.5428 - loss: 1.609 - val_loss: 1.2
Epoch 2/3
45/45 - 2s - 44ms/step - accuracy: 0.9 - loss: 0.3 - val_loss: 0.4
Epoch 3/3
45/45 - 2s - 44ms/step - accuracy: 0.95 - loss: 0.1 - val_loss: 0.2
12/12 - 1s - 118ms/step - accuracy: 0.99 - loss: 0.0385
Test accuracy 0.9889
"""


def folder_of(
    root: Path, found: RunRecord, *, log: str = LOG, lines: list[dict[str, Any]] | None = None
) -> Path:
    """A run's folder as orch leaves it."""
    folder = root / "runs" / found.run_id
    folder.mkdir(parents=True)
    told = trace_lines() if lines is None else lines
    (folder / "trace.jsonl").write_text("".join(json.dumps(line) + "\n" for line in told))
    (folder / "output.log").write_text(log)
    (folder / "run.json").write_text(json.dumps(found.as_json()))
    return folder


def read_back(root: Path, found: RunRecord, **files: Any) -> RunDetails:
    """The details of a run whose files were written."""
    folder = folder_of(root, found, **files)
    return read_details(RunRecord(**{**vars(found), "path": str(folder)}))


def hostile(value: Any, text: str = HOSTILE) -> Any:
    """The same shape, with every text replaced."""
    if isinstance(value, str):
        return text
    if isinstance(value, Mapping):
        return {key: hostile(each, text) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [hostile(each, text) for each in value]
    return value


WRONG: tuple[Any, ...] = (
    None,
    True,
    -1,
    math.nan,
    math.inf,
    1e400,
    10**400,
    "x",
    [],
    {},
    [None],
    {"a": [1]},
    [[{}]],
)
"""Values of every other type."""
