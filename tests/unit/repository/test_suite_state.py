"""The suite leaves the state folder of whoever runs it alone."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from orchestrator.providers.local.store import state_home
from orchestrator.session.owner import note_folder
from tests.state_home import STATE_HOME, StateHome

SHOW = "import os; from orchestrator.providers.local.store import state_home; print(state_home(os.environ))"


def test_what_is_noted_goes_to_the_suite_s_own_folder(tmp_path: Path) -> None:
    note_folder("suite-000000", tmp_path)
    kept = state_home(os.environ) / "leases" / "suite-000000"
    assert kept.is_file()
    kept.unlink()
    assert kept.is_relative_to(tempfile.gettempdir())
    assert STATE_HOME.theirs is not None and not kept.is_relative_to(STATE_HOME.theirs)
    shown = subprocess.run([sys.executable, "-c", SHOW], capture_output=True, text=True, check=True)
    assert Path(shown.stdout.strip()) == state_home(os.environ)


def test_a_write_to_the_user_s_folder_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test ends with this look, and fails for what is found."""
    watched = StateHome()
    monkeypatch.setenv("ORCH_TEST_STATE", str(tmp_path / "home"))
    monkeypatch.delenv("ORCH_STATE_HOME", raising=False)
    watched.install()
    monkeypatch.setenv("ORCH_STATE_HOME", str(tmp_path / "home"))
    note_folder("suite-000001", tmp_path)
    (project,) = (tmp_path / "home/projects").iterdir()
    assert watched.take() == [str(tmp_path / "home/leases/suite-000001"), str(project)]
    assert (tmp_path / "home/leases/suite-000001").read_bytes()
    assert watched.take() == []
