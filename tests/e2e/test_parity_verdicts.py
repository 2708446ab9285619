"""Each verdict of `train --local-parity` with each answer of `parity.on_mismatch`, as its user sees it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.e2e.project import Project, tiny

pytestmark = [pytest.mark.machine, pytest.mark.slow]

TRAIN = """
import os, random, sys
from pathlib import Path
from parity_runs import Run, step
verdict, folder = os.environ["VERDICT"], os.environ.get("ORCH_OBSERVE_DIR")
here = "/.orch/here/" in os.getcwd()
changed = {
    "IDENTICAL": {},
    "EQUIVALENT": {"activation_b": [3.0, 5.0 * (1 + 2.0**-23)]},
    "DIVERGENT": {"batch_data_0": [1.0, 2.0, 3.0, 9.0]},
}
if folder:
    values = changed.get(verdict, {}) if here else {}
    if verdict == "UNSTABLE":
        values = {"batch_data_0": [random.SystemRandom().random() for _ in range(4)]}
    steps = [] if verdict == "NOT COMPARED" else [step(**values)]
    Run(steps, requested=1).write(Path(folder).parent)
else:
    Path("out").mkdir()
    Path("out/model.txt").write_text("trained")
"""
"""It records itself as a framework would, the numbers of the verdict that is asked for."""

DEFAULT = {"EQUIVALENT": "warn", "DIVERGENT": "stop", "UNSTABLE": "stop", "NOT COMPARED": "stop"}


@pytest.fixture(scope="module")
def up(machines: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    project = tiny(tmp_path_factory.mktemp("verdicts") / "project", machines, TRAIN)
    shutil.copy(ROOT / "tests/unit/parity_runs.py", project.folder)
    (project.folder / "keras.py").touch()  # what is recorded is a framework's
    with (project.folder / "orch.yaml").open("a") as profile:
        profile.write("  env: {VERDICT: IDENTICAL}\nparity: {steps: 1, budget: 20s}\n")
    project.orch("up", "orch.yaml")
    yield project
    project.orch("down", "--discard")


@pytest.mark.parametrize("asked", ["", "stop", "warn", "one"])
@pytest.mark.parametrize("verdict", ["IDENTICAL", *DEFAULT])
def test_what_a_verdict_does(up: Project, verdict: str, asked: str) -> None:
    """`one`: the opposite of the default for this verdict alone."""
    done = DEFAULT.get(verdict, "warn")
    settings = ["--set", f"train.env.VERDICT={verdict}"]
    if asked == "one":
        done = "warn" if done == "stop" else "stop"
        key = verdict.lower().replace(" ", "_")
        settings += ["--set", f"parity.on_mismatch={{{key}: {done}}}"] if verdict in DEFAULT else []
    elif asked:
        done = asked
        settings += ["--set", f"parity.on_mismatch={asked}"]
    stops = done == "stop" and verdict != "IDENTICAL"
    run_id = f"{verdict.lower().replace(' ', '-')}-{asked or 'default'}"

    said = up.orch("train", "--json", "--local-parity", "--run-id", run_id, *settings, code=7 if stops else 0)
    told = json.loads(said.out)
    recorded = json.loads((up.folder / "runs" / run_id / "run.json").read_text())
    assert recorded["parity"]["verdict"] == verdict
    assert (up.folder / "runs" / run_id / "outputs/out/model.txt").exists() != stops
    if stops:
        assert told["error"]["kind"] == "ParityMismatch"
        assert told["error"]["message"].startswith(f"{verdict}: ")
        assert recorded["exit"]["reason"] == "not_started"
        assert "at $" in told["error"]["exists"] and "orch train" in told["error"]["next_command"]
    else:
        assert told["parity"]["verdict"] == verdict and told["exit"]["code"] == 0
        assert (f"Parity: {verdict}: " in said.err and "The run continues." in said.err) == (
            verdict != "IDENTICAL"
        ), said.err
