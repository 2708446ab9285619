"""What each verb of a run loads on the machine: each is a new process, and most of it is imports."""

from __future__ import annotations

import subprocess

import pytest

from orchestrator.model import Agent

PARSERS = {"argparse", "gettext"}
TREES = {"shutil", "hashlib", "subprocess", "ctypes", "dataclasses"}
RARE = {"traceback", "difflib", "subprocess", "calendar", "platform", "urllib"}
VERBS = {
    "state BASE absent": (0, PARSERS | TREES | RARE),
    "tail BASE absent 0": (3, PARSERS | TREES | RARE),
    "cancel BASE absent --grace 1": (3, PARSERS | TREES | RARE),
    "outputs BASE absent": (3, PARSERS | TREES | RARE),
    "start BASE": (3, PARSERS | RARE),
}
"""Command line, its exit status, and modules that it does without. `start` loads what supervises a run."""


def ran(agent: Agent, line: str, *options: str) -> subprocess.CompletedProcess[str]:
    python, isolated, *argv = agent.argv(*line.replace("BASE", agent.base).split())
    return subprocess.run(
        [python, *options, isolated, *argv], capture_output=True, text=True, check=False, input=""
    )


@pytest.mark.parametrize("line", VERBS)
def test_a_verb_loads_only_what_it_needs(agent: Agent, line: str) -> None:
    status, left_out = VERBS[line]
    done = ran(agent, line, "-X", "importtime")
    assert done.returncode == status, done.stderr
    loaded = {row.rpartition("|")[2].strip() for row in done.stderr.splitlines()}
    assert "orch_runtime.rundir" in loaded
    assert not loaded & left_out


@pytest.mark.parametrize(
    "line",
    ["start", "state BASE", "tail BASE r first", "tail BASE r 0 --again", "cancel BASE r --grace", "outputs"],
)
def test_a_wrong_command_line_is_refused(agent: Agent, line: str) -> None:
    done = ran(agent, line)
    assert done.returncode == 2 and done.stderr.startswith("The verbs of a run: start, state, tail")
