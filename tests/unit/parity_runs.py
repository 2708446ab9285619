"""Recorded runs made by hand: the files that observation writes, without a framework."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

STAGES = ("batch", "initial", "activation", "loss", "gradient", "update")

ENVIRONMENT: dict[str, Any] = {
    "v": 1,
    "python": "3.11.7",
    "argv": ["--epochs", "2"],
    "modules": {"train.py": "a" * 64},
    "cpu": {"count": 2, "flags": ["avx2", "avx512f"]},
    "environment": {"LANG": "C.UTF-8"},
    "versions": {"tensorflow": "2.21.0", "keras": "3.15.1"},
    "tensorflow": {"intra_op_threads": 0, "deterministic_ops": False, "onednn": True, "devices": ["CPU:0"]},
    "keras": {"backend": "tensorflow", "policy": "float32", "floatx": "float32"},
    "models": [{"name": "m", "jit_compile": False, "run_eagerly": False, "steps_per_execution": 1}],
    "optimizers": [{"class": "Adam", "config": {"learning_rate": 0.001}}],
}


@dataclass
class Value:
    """A tensor of float32 numbers, or of raw 16-bit patterns where `dtype` says so."""

    stage: str
    name: str
    numbers: Sequence[float]
    dtype: str = "float32"
    shape: Sequence[int] | None = None
    kept: bool = True

    def packed(self) -> bytes:
        code = {"float32": "f", "float64": "d", "int64": "q", "bfloat16": "H", "float16": "e"}[self.dtype]
        return struct.pack(f"<{len(self.numbers)}{code}", *self.numbers)


@dataclass
class Run:
    """What to write: steps of values, and the facts beside them."""

    steps: list[list[Value]] = field(default_factory=list)
    requested: int = 2
    environment: Mapping[str, Any] = field(default_factory=lambda: dict(ENVIRONMENT))
    unread: Sequence[str] = ()
    notes: Sequence[Mapping[str, str]] = ()

    def write(self, folder: Path) -> Path:
        """The run folder, with observe/ in it."""
        observe = folder / "observe"
        (observe / "tensors").mkdir(parents=True, exist_ok=True)
        lines = [self._line(number, values, observe) for number, values in enumerate(self.steps, 1)]
        (observe / "steps.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        (observe / "environment.json").write_text(json.dumps(self.environment))
        status = {"v": 1, "requested": self.requested, "steps": len(self.steps), "not_compared": self.notes}
        (observe / "status.json").write_text(json.dumps(status))
        return folder

    def _line(self, number: int, values: Sequence[Value], observe: Path) -> dict[str, Any]:
        batch = next((v for v in values if v.stage == "batch"), None)
        return {
            "v": 1,
            "event": "step",
            "step": number,
            "unread": list(self.unread),
            "records": {batch.name.split("/")[0]: records(batch.numbers)} if batch else {},
            "tensors": [_tensor(value, observe) for value in values],
        }


def records(rows: Sequence[float]) -> dict[str, Any]:
    digests = [hashlib.sha256(struct.pack("<d", row)).digest() for row in rows]
    return {
        "count": len(digests),
        "ordered": hashlib.sha256(b"".join(digests)).hexdigest(),
        "multiset": f"{sum(int.from_bytes(d, 'big') for d in digests) % (1 << 256):064x}",
        "rows": [d.hex()[:16] for d in digests],
    }


def npy(descr: str, count: int, packed: bytes) -> bytes:
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': ({count},), }}"
    padded = header.encode() + b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(padded)) + padded + packed


def _tensor(value: Value, observe: Path) -> dict[str, Any]:
    packed = value.packed()
    digest = hashlib.sha256(packed).hexdigest()
    item: dict[str, Any] = {
        "stage": value.stage,
        "name": value.name,
        "dtype": value.dtype,
        "shape": list(value.shape or [len(value.numbers)]),
        "elements": len(value.numbers),
        "sha256": digest,
        "l2": math.sqrt(math.fsum(float(n) ** 2 for n in value.numbers)),
    }
    if value.kept:
        descr = {"float32": "<f4", "float64": "<f8", "int64": "<i8", "bfloat16": "<u2", "float16": "<f2"}
        item["file"] = f"tensors/{digest[:32]}.npy"
        (observe / item["file"]).write_bytes(npy(descr[value.dtype], len(value.numbers), packed))
    return item


def step(**changed: Sequence[float]) -> list[Value]:
    """One step of a small model; `changed` replaces values by stage_name (activation_a=…)."""
    usual = {
        "batch_data/0": [1.0, 2.0, 3.0, 4.0],
        "initial_a/kernel": [0.5, 0.25, -1.0],
        "initial_b/kernel": [0.125, 2.0],
        "activation_a": [1.0, 2.0, 4.0],
        "activation_b": [3.0, 5.0],
        "loss_loss": [0.75],
        "gradient_a/kernel": [0.5, -0.5, 1.0],
        "gradient_b/kernel": [0.25, 1.5],
        "update_a/kernel": [0.4, 0.3, -1.1],
        "update_b/kernel": [0.1, 1.8],
    }
    values = []
    for key, numbers in usual.items():
        stage, name = key.split("_", 1)
        values.append(Value(stage, name, changed.get(key.replace("/", "_"), numbers)))
    return values
