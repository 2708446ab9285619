"""A shell completes verbs, options, runs and leases."""

from __future__ import annotations

import functools
import os
import shlex
import shutil
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


ZSH = """
compdef() {{ }}
eval "$(orch --show-completion)"
_arguments() {{ print -r -- "$@" }}
words=({words}) CURRENT={count}
_orch_completion
"""
FISH = "orch --show-completion | source; complete --do-complete {line}"


def offered(folder: Path, shell: str, *words: str) -> str:
    """What zsh or fish is told for the last of `words`."""
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not here: apt-get install {shell}")
    script = ZSH if shell == "zsh" else FISH
    line = shlex.quote(" ".join(words))
    asked = script.format(words=shlex.join(words), count=len(words), line=line)
    bare = ["--no-rcs", "-c", asked] if shell == "zsh" else ["--no-config", "-c", asked]
    path = f"{ORCH.parent}:{os.environ['PATH']}"
    environ = {**os.environ, "PATH": path, "SHELL": program, "HOME": str(folder)}
    said = subprocess.run(
        [program, *bare], cwd=folder, env=environ, check=True, capture_output=True, text=True
    )
    assert not said.stderr
    return said.stdout


@pytest.mark.processes
@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_complete_the_same(project: Path, shell: str) -> None:
    assert "train" in offered(project, shell, "orch", "tra")
    assert "--local-parity" in offered(project, shell, "orch", "train", "--loc")
    runs = offered(project, shell, "orch", "report", "ni")
    assert "nightly-1" in runs and "nightly-2" in runs and "other" not in runs


@pytest.mark.processes
@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_what_is_installed_is_found_by_a_new_shell(project: Path, shell: str, tmp_path: Path) -> None:
    """`orch --install-completion` writes where the shell looks when it begins."""
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not here: apt-get install {shell}")
    home = tmp_path / "home"
    home.mkdir()
    path = f"{ORCH.parent}:{os.environ['PATH']}"
    environ = {"HOME": str(home), "PATH": path, "TERM": "dumb", "SHELL": program}
    run = functools.partial(
        subprocess.run, cwd=project, env=environ, check=True, capture_output=True, text=True
    )
    run([program, "-c", "orch --install-completion; true"])
    if shell == "zsh":
        assert run([program, "-ic", "print $_comps[orch]"]).stdout.split()[-1] == "_orch"
    else:
        assert "train" in run([program, "-c", "complete --do-complete 'orch tra'"]).stdout


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
