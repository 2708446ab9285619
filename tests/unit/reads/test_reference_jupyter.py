"""The reference side of a notebook: Jupyter and IPython leave the user's own settings as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.reads.test_reference import PROFILE, ran

pytestmark = pytest.mark.processes


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, orch_cache: Path) -> Path:
    (tmp_path / "home").mkdir()
    (tmp_path / "project").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ORCH_CACHE_HOME", str(orch_cache))
    return tmp_path / "project"


JUPYTER = """\
    import os
    from pathlib import Path
    for name, usual in (
        ("IPYTHONDIR", "~/.ipython"),
        ("JUPYTER_CONFIG_DIR", "~/.jupyter"),
        ("JUPYTER_DATA_DIR", "~/.local/share/jupyter"),
        ("JUPYTER_RUNTIME_DIR", "~/.local/share/jupyter/runtime"),
    ):
        folder = Path(os.environ.get(name) or os.path.expanduser(usual))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "migrated").write_text("")
    print("executed", os.environ["IPYTHONDIR"])
"""


def test_what_executes_a_notebook_writes_its_settings_into_temporary_folders(
    project: Path, tmp_path: Path
) -> None:
    run = ran(project, JUPYTER)
    assert (run.reason, run.refused) == ("completed", ""), run.output
    assert list((tmp_path / "home").iterdir()) == []
    assert not Path(run.output.split()[1]).exists()


def test_a_folder_for_jupyter_that_the_profile_names_is_used(project: Path) -> None:
    profile = PROFILE.replace("train.py", "train.py, env: {IPYTHONDIR: ./mine}")
    assert ran(project, JUPYTER, profile).output == "executed ./mine\n"
