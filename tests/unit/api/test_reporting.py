"""Which run a report is of, and where it is written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator import api
from orchestrator.errors import UsageError
from orchestrator.report.page import State
from tests.unit.report.page.runs import folder_of, record


def test_the_page_is_written_beside_the_record(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, record())
    made = api.report("digits-1", folder=tmp_path)
    assert made.path == folder / "report.html"
    assert made.path.read_text() == made.text
    assert made.as_json()["verdict"]["state"] == State.OK


def test_without_a_run_the_newest_is_meant(tmp_path: Path) -> None:
    folder_of(tmp_path, record())
    assert api.report(folder=tmp_path).page.runs == ("digits-1",)


def test_two_runs_are_compared(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, record())
    folder_of(tmp_path, record(run_id="digits-2", metrics={"accuracy": 0.5}))
    made = api.report("digits-1", "digits-2", folder=tmp_path)
    assert made.path == folder / "report-digits-2.html"
    assert made.page.headline.state == State.BAD
    assert "metric accuracy" in made.page.headline.sentence


@pytest.mark.parametrize("form", ["md", "json"])
def test_markdown_and_json_are_returned_and_not_written(tmp_path: Path, form: str) -> None:
    folder = folder_of(tmp_path, record())
    made = api.report("digits-1", format=form, folder=tmp_path)
    assert made.path is None
    assert not (folder / "report.html").exists()
    if form == "json":
        assert json.loads(made.text)["schema"] == "orch.report/1"


def test_a_damaged_record_has_a_page_that_says_so(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, record())
    (folder / "run.json").write_text('{"torn')
    made = api.report("digits-1", folder=tmp_path)
    assert made.page.headline.state == State.BAD
    assert "is damaged" in made.page.headline.sentence


def test_a_run_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    folder_of(tmp_path, record())
    with pytest.raises(UsageError, match="digits-1"):
        api.report("digits-7", folder=tmp_path)
    with pytest.raises(UsageError, match="no format"):
        api.report("digits-1", format="pdf", folder=tmp_path)
