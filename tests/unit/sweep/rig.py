"""A project to sweep on machines of the cloud in memory, and what its script did."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import orchestrator as orch
from orchestrator.cli import main
from orchestrator.model import Silent
from orchestrator.model.sweeps import Sweep
from tests.unit import here_cloud
from tests.unit.here_cloud import HereCloud

SCRIPT = """import json, os, sys, time
from pathlib import Path
lr, seed = sys.argv[1], os.environ["ORCH_PARAM_SEED"]
assert os.environ["ORCH_PARAM_LR"] == lr
with open(os.environ["TRAINED"], "a") as file:
    file.write(f"{lr} {seed}\\n")
Path(os.environ["TRAINED"] + f".at.{seed}").write_text(os.getcwd())
time.sleep(float(os.environ.get("TAKES", "0")))
while Path(os.environ["TRAINED"] + f".hold.{seed}").exists():
    time.sleep(0.05)
if os.environ.get("BAD") == seed and not Path(os.environ["TRAINED"] + ".mended").exists():
    sys.exit("a bad seed")
Path("metrics.json").write_text(json.dumps({"loss": float(lr) + float(seed)}))
"""


class Told(Silent):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


class Swept:
    """A project to sweep, and what its script did."""

    def __init__(self, folder: Path, cloud: HereCloud) -> None:
        self.folder, self.cloud = folder, cloud
        self.trained_file = folder.with_name("trained")
        self.profile = here_cloud.project(folder, SCRIPT)
        self.write()

    def write(self, more: str = "", **env: str) -> None:
        variables = {"TRAINED": str(self.trained_file), **env}
        text = self.profile.read_text().partition("train:")[0]
        self.profile.write_text(
            f"{text}train:\n  command: python train.py {{lr}}\n  env: {json.dumps(variables)}\n{more}"
        )

    def sweep(self, **options: Any) -> Sweep:
        matrix: dict[str, Sequence[object]] = options.pop("matrix", {"lr": ["0.1", "0.01"], "seed": [1, 2]})
        return orch.sweep(self.profile, matrix=matrix, folder=self.folder, **options)

    @property
    def trained(self) -> Counter[str]:
        return Counter(self.trained_file.read_text().splitlines() if self.trained_file.exists() else ())

    def hold(self, seed: int) -> Path:
        """Let runs with this seed wait until the file is removed."""
        held = self.trained_file.with_name(f"{self.trained_file.name}.hold.{seed}")
        held.touch()
        return held


def run_cli(folder: Path, monkeypatch: pytest.MonkeyPatch, *argv: str) -> int:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["orch", *argv])
    with pytest.raises(SystemExit) as left:
        main()
    return int(left.value.code or 0)
