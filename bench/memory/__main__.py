"""Predicted peak of memory against the measured one, at a batch size that was not among those tried.

    PYTHON-WITH-TENSORFLOW -m bench.memory [KIND...]

Each training is sized as `orch size` does it, from its own batch; then it is run as it is with another batch
size, in a process of its own, and TensorFlow says what its peak was, on the GPU where there is one.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from bench.memory import jobs
from orchestrator.profiling.size import Model, model, read
from orchestrator.runtime.sizing_course import Wish
from orchestrator.runtime.sizing_meter import ALLOCATOR, Meter

OWN = 64
"""The program's batch size: sized from 16, 32 and 64."""

HELD_OUT = (24, 48, 128, 256)
STEPS = 25


def main(kinds: list[str]) -> int:
    os.environ[ALLOCATOR] = "1"
    import keras
    import tensorflow as tf

    versions = f"TensorFlow {tf.__version__}, Keras {keras.__version__}"
    print(f"{platform.machine()}, {os.cpu_count()} cores, {versions}")
    print(f"{'job':<18}{'batch':>6}{'predicted':>12}{'95 %':>22}{'measured':>12}{'error':>8}{'formula':>12}")
    errors: list[float] = []
    inside = 0
    for kind in kinds or list(jobs.SHAPES):
        for optimizer in jobs.OPTIMIZERS:
            fitted = _sized(kind, optimizer)
            for batch in HELD_OUT:
                error, within = _line(fitted, kind, optimizer, batch)
                errors.append(error)
                inside += within
    print(
        f"\nmedian error {median(errors):.1%}, largest {max(errors):.1%}; "
        f"{inside} of {len(errors)} measured peaks lie in the interval"
    )
    return 0


def _line(fitted: Model, kind: str, optimizer: str, batch: int) -> tuple[float, bool]:
    predicted = fitted.device(batch)
    assert predicted is not None
    measured = _measured(kind, optimizer, batch)
    error = abs(predicted.value - measured) / measured
    between = f"{_mib(predicted.low)} … {_mib(predicted.high)}"
    print(
        f"{kind + ', ' + optimizer:<18}{batch:>6}{_mib(predicted.value):>12}{between:>22}"
        f"{_mib(measured):>12}{error:>8.1%}{_mib(fitted.formula(batch) or 0):>12}",
        flush=True,
    )
    return error, predicted.low <= measured <= predicted.high


def _mib(size: float) -> str:
    return f"{size / (1 << 20):.1f} MiB"


def _sized(kind: str, optimizer: str) -> Model:
    """As the hook does it: the frameworks are imported, the program then trains."""
    result = _forked(lambda out: _size(kind, optimizer, out))
    return model(read(result))


def _size(kind: str, optimizer: str, out: Path) -> None:
    import keras
    import tensorflow as tf

    from orchestrator.runtime.sizing import Sizing

    sizing = Sizing(Wish(str(out)))
    sizing.on_tensorflow(tf)
    sizing.on_keras(keras)
    jobs.train(kind, optimizer, OWN, STEPS)


def _measured(kind: str, optimizer: str, batch: int) -> int:
    """The allocator's peak of the whole training."""
    return int(_forked(lambda out: _peak(kind, optimizer, batch, out))["peak"])


def _peak(kind: str, optimizer: str, batch: int, out: Path) -> None:
    import tensorflow as tf

    meter = Meter(tf)
    meter.spread()
    tf.config.experimental.reset_memory_stats(meter.device)
    jobs.train(kind, optimizer, batch, STEPS)
    out.write_text(json.dumps({"peak": tf.config.experimental.get_memory_info(meter.device)["peak"]}))


def _forked(work: Any) -> dict[str, Any]:
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
