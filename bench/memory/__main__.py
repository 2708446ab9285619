"""Predicted peaks of memory against measured ones, at batch sizes that were not among those tried.

    PYTHON-WITH-TENSORFLOW -m bench.memory [KIND...]

Each training is sized as `orch size` does it, from its own batch; then it is run as it is with other batch
sizes, each in a process of its own, and TensorFlow says what its peak was, on the GPU where there is one. The
second table is of what the whole process held in main memory, with TensorFlow's usual allocator.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.memory import jobs
from orchestrator.runtime.sizing.course import Options
from orchestrator.runtime.sizing.meter import ALLOCATOR, Meter, high_water
from orchestrator.runtime.sizing.sizing import Sizing
from orchestrator.sizing.fit import Estimate
from orchestrator.sizing.model import Model, model, read

OWN = 64
"""The program's batch size: sized from 16, 32 and 64."""

HELD_OUT = (24, 48, 128)
STEPS = 25


@dataclass(frozen=True)
class Row:
    """One prediction, bytes."""

    name: str
    batch: int
    predicted: Estimate
    measured: int
    formula: int | None = None

    @property
    def error(self) -> float:
        return abs(self.predicted.value - self.measured) / self.measured

    @property
    def inside(self) -> bool:
        return self.predicted.low <= self.measured <= self.predicted.high

    def __str__(self) -> str:
        between = f"{_mib(self.predicted.low)} … {_mib(self.predicted.high)}"
        formula = _mib(self.formula) if self.formula else ""
        return (
            f"{self.name:<18}{self.batch:>6}{_mib(self.predicted.value):>12}{between:>22}"
            f"{_mib(self.measured):>12}{self.error:>8.1%}{formula:>12}"
        )


def main(kinds: list[str]) -> int:
    os.environ[ALLOCATOR] = "1"
    import keras
    import tensorflow as tf

    versions = f"TensorFlow {tf.__version__}, Keras {keras.__version__}"
    print(f"{platform.machine()}, {os.cpu_count()} cores, {versions}")
    print(f"{'job':<18}{'batch':>6}{'predicted':>12}{'95%':>22}{'measured':>12}{'error':>8}{'formula':>12}")
    steps: list[Row] = []
    processes: list[Row] = []
    for kind in kinds or list(jobs.SHAPES):
        for optimizer in jobs.OPTIMIZERS:
            name, fitted = f"{kind}, {optimizer}", _sized(kind, optimizer)
            for batch in HELD_OUT:
                steps.append(_step(name, fitted, kind, optimizer, batch))
                print(steps[-1], flush=True)
            held = _forked(lambda out, k=kind, o=optimizer: _hold(k, o, HELD_OUT[-1], out))["held"]
            processes.append(Row(name, HELD_OUT[-1], fitted.held.at(HELD_OUT[-1]), held))
    print(_summary(steps))
    print("\nThe whole process in main memory")
    for row in processes:
        print(row)
    print(_summary(processes))
    return 0


def _summary(rows: list[Row]) -> str:
    errors = [row.error for row in rows]
    inside = sum(row.inside for row in rows)
    return (
        f"median error {median(errors):.1%}, largest {max(errors):.1%}; "
        f"{inside} of {len(rows)} measured peaks lie in the interval"
    )


def _step(name: str, fitted: Model, kind: str, optimizer: str, batch: int) -> Row:
    predicted = fitted.device(batch)
    assert predicted is not None
    measured = _forked(lambda out: _peak(kind, optimizer, batch, out))["peak"]
    return Row(name, batch, predicted, measured, fitted.formula(batch))


def _mib(size: float) -> str:
    return f"{size / (1 << 20):.1f} MiB"


# ---------------------------------------------------------------- in children


def _sized(kind: str, optimizer: str) -> Model:
    """As the hook does it: the frameworks are imported, the program then trains."""
    return model(read(_forked(lambda out: _size(kind, optimizer, out))))


def _size(kind: str, optimizer: str, out: Path) -> None:
    import keras
    import tensorflow as tf

    sizing = Sizing(Options(str(out)))
    sizing.on_tensorflow(tf)
    sizing.on_keras(keras)
    jobs.train(kind, optimizer, OWN, STEPS)


def _peak(kind: str, optimizer: str, batch: int, out: Path) -> None:
    """The allocator's peak of the whole training."""
    import tensorflow as tf

    meter = Meter(tf)
    meter.spread()
    tf.config.experimental.reset_memory_stats(meter.device)
    jobs.train(kind, optimizer, batch, STEPS)
    peak = tf.config.experimental.get_memory_info(meter.device)["peak"]
    out.write_text(json.dumps({"peak": peak}))


def _hold(kind: str, optimizer: str, batch: int, out: Path) -> None:
    """Most bytes that the process held, with the allocator that TensorFlow has by default."""
    os.environ.pop(ALLOCATOR)
    jobs.train(kind, optimizer, batch, STEPS)
    out.write_text(json.dumps({"held": high_water()}))


def _forked(work: Callable[[Path], None]) -> dict[str, Any]:
    """What `work` writes into the file that it is given, in a child that has the frameworks imported."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "result.json"
        child = os.fork()
        if child == 0:
            try:
                work(out)
                os._exit(0)
            finally:
                os._exit(1)
        os.waitpid(child, 0)
        result: dict[str, Any] = json.loads(out.read_text())
        return result


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
