"""What `orch record` and `orch compare --confirm` take, against the plain script; printed by bench/parity.

On the digits example, in its own environment, in turns: one epoch plain and recorded; the first three steps
plain; and the cause of a difference (another seed in the settings of one of two recorded runs) confirmed.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rows import note

ROOT = Path(__file__).resolve().parents[1]
ORCH = str(ROOT / ".venv" / "bin" / "orch")
RECORD_GOAL_S, CONFIRM_GOAL = 2.0, 3.0
EPOCH = ("seeded.py", "--data", "data", "--output", "out", "--epochs", "1")
SETTINGS = "settings.json"
SEEDED = """import json
import train
train.SEED = json.load(open("settings.json"))["seed"]
train.main()
"""
STOPPED = """import os, sys
import keras

class Stop(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 2:
            os._exit(0)

fit = keras.Model.fit

def stopped(self, *args, **given):
    return fit(self, *args, **{**given, "callbacks": [*(given.get("callbacks") or ()), Stop()]})

keras.Model.fit = stopped
import seeded
"""


def verbs(python: str, rounds: int) -> bool:
    """Print both; whether one is over its goal."""
    with tempfile.TemporaryDirectory(prefix="orch-steps-") as name:
        folder = Path(name) / "digits"
        shutil.copytree(ROOT / "examples" / "digits", folder, ignore=shutil.ignore_patterns("data", "out"))
        (folder / "first.py").write_text(STOPPED)
        (folder / "seeded.py").write_text(SEEDED)
        (folder / SETTINGS).write_text('{"seed": 20}')
        seconds([python, "prepare.py", "--output", "data"], folder)
        plain, recorded, first = [], [], []
        for number in range(rounds):
            plain.append(seconds([python, *EPOCH], folder))
            recorded.append(seconds(record(python, f"a{number}"), folder))
            first.append(seconds([python, "first.py", *EPOCH[1:]], folder))
        (folder / SETTINGS).write_text('{"seed": 21}')
        seconds(record(python, "b"), folder)
        confirmed = [confirm(folder, "a0") for _ in range(rounds)]
    added = statistics.median(mine - hand for mine, hand in zip(recorded, plain, strict=True))
    note("parity.record", [mine - hand for mine, hand in zip(recorded, plain, strict=True)])
    note("parity.confirm", [each / statistics.median(first) for each in confirmed])
    ratio = statistics.median(confirmed) / statistics.median(first)
    print(
        f"record of 3 steps: {added:+.2f} s over the plain script's {statistics.median(plain):.2f} s "
        f"(goal +{RECORD_GOAL_S:.0f} s)\n"
        f"compare --confirm of one likely cause: {statistics.median(confirmed):.2f} s, {ratio:.2f}x of one "
        f"plain run of the first steps, {statistics.median(first):.2f} s (goal {CONFIRM_GOAL:.0f}x)",
        flush=True,
    )
    return added > RECORD_GOAL_S or ratio > CONFIRM_GOAL


def record(python: str, run_id: str) -> list[str]:
    return [ORCH, "record", "--steps", "3", "--run-id", run_id, "--", python, *EPOCH]


def confirm(folder: Path, one: str) -> float:
    """Seconds of `compare --confirm`, which must name the settings."""
    begun = time.monotonic()
    done = subprocess.run(
        [ORCH, "compare", one, "b", "--confirm", "--json"], cwd=folder, capture_output=True, check=False
    )
    took = time.monotonic() - begun
    if SETTINGS not in json.dumps(json.loads(done.stdout)):
        sys.exit(f"compare --confirm did not name {SETTINGS}: {done.stderr.decode()[-1000:]}")
    return took


def seconds(command: Sequence[str], folder: Path) -> float:
    environ = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
    begun = time.monotonic()
    done = subprocess.run(
        command, cwd=folder, env=environ, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    if done.returncode:
        sys.exit(f"{command}: {done.stderr.decode()[-1000:]}")
    return time.monotonic() - begun
