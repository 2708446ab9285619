"""A shell completes verbs, options, runs and leases."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.api.completing import lease_ids, run_ids

ORCH = Path(sys.executable).with_name("orch")
ASK = """
eval "$(orch --show-completion bash)"
COMP_WORDS=({words})
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_orch_completion orch
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for number, name in enumerate(("nightly-1", "nightly-2", "other", ".hidden")):
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        os.utime(folder, (1000 + number, 1000 + number))
    return tmp_path


def completed(folder: Path, *words: str) -> list[str]:
    """What bash offers for the last of `words`."""
    asked = ASK.format(words=" ".join(f"'{word}'" for word in words))
    path = f"{ORCH.parent}:{os.environ['PATH']}"
    said = subprocess.run(
        ["bash", "--norc", "-c", asked], cwd=folder, env={**os.environ, "PATH": path, "SHELL": "/bin/bash"},
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return said.stdout.split()


@pytest.mark.processes
def test_bash_completes_verbs_options_and_runs(project: Path) -> None:
    assert completed(project, "orch", "tra") == ["train"]
    assert "--local-parity" in completed(project, "orch", "train", "--loc")
    assert completed(project, "orch", "report", "ni") == ["nightly-2", "nightly-1"]


def test_the_newest_runs_come_first_and_nothing_is_an_error(project: Path, tmp_path: Path) -> None:
    assert run_ids("", project) == ["other", "nightly-2", "nightly-1"]
    assert run_ids("x", project) == [] == lease_ids("", project)
    assert run_ids("", tmp_path / "absent") == []
    (project / ".orch").write_text("no folder")
    assert lease_ids("", project) == []
