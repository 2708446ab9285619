"""The digits example with a machine, and commands that are timed there: for bench/loop, long and ray."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ORCH = str(ROOT / ".venv" / "bin" / "orch")
THREADS = {"TF_NUM_INTRAOP_THREADS": "2", "TF_NUM_INTEROP_THREADS": "2", "TF_CPP_MIN_LOG_LEVEL": "2"}
PROFILE = """version: 1
name: loop
cloud: local
resources: {{cpus: 2, memory: 4 GiB, disk: 10 GiB}}
max_duration: 2h
stack: {{lock: requirements.lock}}
data: [{{source: data, prepare: python prepare.py --output data}}]
train:
  command: python train.py --data data --output out --epochs {epochs}
  env: {env}
  outputs: [out]
"""


@dataclass
class Rounds:
    """Seconds of each round, by way; `stages` of `orch train`, `cpu` of its command."""

    wall: dict[str, list[float]] = field(default_factory=dict)
    cpu: dict[str, list[float]] = field(default_factory=dict)
    stages: dict[str, list[float]] = field(default_factory=dict)

    def add(self, way: str, command: Sequence[str], folder: Path) -> None:
        begun = time.monotonic()
        with subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **THREADS},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        ) as process:
            assert process.stderr
            try:
                said = process.stderr.read()
            except BaseException:
                process.kill()
                raise
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            sys.exit(f"{shlex.join(command)}: {said.decode()[-2000:]}")
        self.wall.setdefault(way, []).append(time.monotonic() - begun)
        self.cpu.setdefault(way, []).append(usage.ru_utime + usage.ru_stime)


def project(folder: Path, epochs: int) -> Path:
    """A copy of the example in `folder`/digits, without a machine."""
    made = folder / "digits"
    shutil.copytree(ROOT / "examples" / "digits", made, ignore=shutil.ignore_patterns("data", "out"))
    (made / "orch.yaml").write_text(PROFILE.format(epochs=epochs, env=json.dumps(THREADS)))
    return made


@contextmanager
def leased(given: Path | None, epochs: int) -> Iterator[Path]:
    """A folder of the example with a machine that has its stack; `given`, or one that is made and ended."""
    if given is not None:
        yield given.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="loop-") as name:
        folder = project(Path(name), epochs)
        try:
            orch(folder, "up", "orch.yaml", "--yes")
            yield folder
        finally:
            subprocess.run([ORCH, "down", "--discard"], cwd=folder, check=False, stdout=subprocess.DEVNULL)


def orch(folder: Path, *argv: str) -> None:
    environ, stdin = {**os.environ, **THREADS}, subprocess.DEVNULL
    done = subprocess.run(
        [ORCH, *argv], cwd=folder, env=environ, stdin=stdin, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"orch {' '.join(argv)}: {done.stderr[-2000:]}")


def environment(folder: Path) -> str:
    """The Python of the environment that the lock made here."""
    sys.path.insert(0, str(ROOT))
    from orchestrator import stack

    lock = stack.read_lock(folder / "requirements.lock")
    return str(stack.local_environment(lock, folder, None).python)


def by_hand(folder: Path, epochs: int) -> list[str]:
    """The script as one would run it here; its results lie in .native."""
    given = ["--data", "data", "--output", f"{folder}/.native", "--epochs", str(epochs)]
    return [environment(folder), "train.py", *given]


def with_orch(epochs: int, *options: str) -> list[str]:
    command = shlex.join(["python", "train.py", "--data", "data", "--output", "out", "--epochs", str(epochs)])
    return [ORCH, "train", *options, "--set", f"train.command={command}"]


def edit(script: Path, number: int) -> None:
    text = script.read_text().partition("\n# edited ")[0].rstrip("\n")
    script.write_text(f"{text}\n# edited {number} {time.time()}\n")


def runs(folder: Path) -> set[Path]:
    return {path for path in (folder / "runs").glob("*") if path.is_dir()}


def require_same(one: Path, other: Path) -> None:
    """Exit if two outputs of the script differ: their metrics, or the weights of their models."""
    contents = []
    for folder in (one, other):
        with zipfile.ZipFile(folder / "model.keras") as model:
            contents.append(((folder / "metrics.json").read_bytes(), model.read("model.weights.h5")))
    if contents[0] != contents[1]:
        sys.exit(f"{one} and {other} differ: {contents[0][0]!r}, {contents[1][0]!r}")
