"""What a machine's interpreter runs as it starts, such as a .pth file, is no part of orch."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from orchestrator.model import Agent
from tests.unit.job_runs import shell, to_the_end


def test_a_run_needs_no_site_of_its_machine(agent: Agent, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", broken], check=True)
    (site,) = broken.glob("lib/python*/site-packages")
    (site / "broken.pth").write_text("import os; os._exit(3)\n")
    assert subprocess.run([broken / "bin/python", "-I", "-c", "pass"]).returncode == 3
    state, output = to_the_end(replace(agent, python=str(broken / "bin/python")), shell("echo done"))
    assert state.exit and state.exit.code == 0
    assert output == b"done\n"
