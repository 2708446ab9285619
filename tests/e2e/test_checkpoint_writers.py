"""Real writers of checkpoints, killed at random moments while they save: every copy that is taken loads."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.runtime.keep.snapshot import FOLDER, Keeper
from orchestrator.runtime.rundir import RunDir

WRITERS = Path(__file__).with_name("checkpoint_writers.py")
KINDS = (
    *("backup", "keras", "weights", "h5", "manager", "in_place", "saved_model"),
    *("plain", "arrays", "pickled", "marked"),
)
COPIES = 4
LONGEST_S = 60.0
PAUSES = (0.0, 0.003, 0.02, 0.08, 0.7)

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow, pytest.mark.timeout(600)]


class Writers:
    """The program of WRITERS."""

    def __init__(self, python: Path, errors: Path) -> None:
        environ = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
        with errors.open("wb") as file:
            self._program = subprocess.Popen(
                [str(python), "-W", "ignore", str(WRITERS)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                env=environ,
                text=True,
            )

    def ask(self, *words: object) -> Any:
        assert self._program.stdin and self._program.stdout
        self._program.stdin.write(" ".join(map(str, words)) + "\n")
        self._program.stdin.flush()
        return json.loads(self._program.stdout.readline())

    def close(self) -> None:
        assert self._program.stdin
        self._program.stdin.close()
        self._program.wait()


@pytest.fixture(scope="module")
def writers(tf_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Writers]:
    made = Writers(tf_python, tmp_path_factory.mktemp("writers") / "errors")
    yield made
    made.close()


@pytest.mark.parametrize("kind", KINDS)
def test_every_copy_of_a_writer_that_is_killed_anywhere_loads(
    writers: Writers, tmp_path: Path, kind: str
) -> None:
    run, chosen = RunDir(str(tmp_path), "one"), random.Random(kind)
    saved = Path(run.work) / "saved"
    saved.mkdir(parents=True)
    lives, copies = threading.Event(), list[Path]()
    keeper = Keeper(run, ["saved"], lambda: not lives.is_set())

    def look(patience: float) -> None:
        seq = keeper.look(patience)
        if seq is not None:
            copy = tmp_path / "copies" / str(seq)
            shutil.copytree(Path(run.path(FOLDER)) / f"{seq:06d}/files/saved", copy)
            copies.append(copy)

    begun, until = 0, time.monotonic() + LONGEST_S
    while (len(copies) < COPIES or begun < 3) and time.monotonic() < until:
        writer = writers.ask("write", kind, saved, 1000 * begun, chosen.choice(PAUSES))
        lives.set()
        killed = time.monotonic() + chosen.uniform(0.5, 2.0)
        while time.monotonic() < killed:
            look(chosen.choice((0.0, 0.2, 1.0)))
            time.sleep(chosen.uniform(0, 0.03))
        lives.clear()
        writers.ask("end", kind, writer)
        look(0.0)
        begun += 1
    assert copies
    wrong = {copy.name: told for copy in copies if "wrong" in (told := writers.ask("check", kind, copy))}
    assert not wrong, wrong
