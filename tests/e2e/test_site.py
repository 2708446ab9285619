"""The documentation site is built, without a warning and without a page that asks another host."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT


@pytest.mark.nightly
@pytest.mark.registry
@pytest.mark.slow
def test_it_builds_strictly(tmp_path: Path) -> None:
    done = subprocess.run(
        [ROOT / "scripts/site", tmp_path / "site"], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr + done.stdout
    assert "INFO    -  Documentation built" in done.stderr, "of a quiet build, warnings are not counted"
    assert "WARNING -" not in done.stderr
    for page in ("index", "tutorial", "how-to/spot", "run-json", "decisions/016-site"):
        assert (tmp_path / f"site/{page}.html").is_file()
    assert (tmp_path / "site/search/search_index.js").is_file()
    assert (tmp_path / "site/repository/profiles/schema.json").is_file()
