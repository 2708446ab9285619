"""Outputs that a profile names and that its run never wrote: said, in the record and on the screen."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

import orchestrator as orch
from orchestrator.api.schemas import schema
from orchestrator.report.run import summary
from tests.said import Said
from tests.unit import here_cloud

WRITES = """import pathlib
pathlib.Path("output").mkdir()
pathlib.Path("output/model.keras").write_text("weights")
pathlib.Path("notes.txt").write_text("n")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    here_cloud.cloud(tmp_path / "machines", monkeypatch, prepared=True)
    return tmp_path / "p"


def leased(folder: Path, outputs: str, script: str = WRITES) -> None:
    profile = here_cloud.project(folder, script, more=f"  outputs: [{outputs}]\n")
    orch.up(profile, folder=folder)


def test_one_of_several_is_named_with_the_nearest_that_was_written(folder: Path) -> None:
    leased(folder, "notes.txt, out/model.keras")
    told = Said()
    record = orch.train(run_id="one", folder=folder, progress=told)
    assert record.succeeded
    (lacking,) = record.unwritten
    assert (lacking["pattern"], lacking["nearest"]) == ("out/model.keras", "output/model.keras")
    assert Path(lacking["looked_for"]).parts[-5:] == ("runs", "one", "work", "out", "model.keras")
    assert not lacking["no_other"]
    assert any("did not write out/model.keras" in words for words in told.lines)
    screen = summary(record)
    assert f"out/model.keras of train.outputs: {lacking['looked_for']} does not exist" in screen
    assert "the run wrote output/model.keras" in screen
    value = json.loads((record.folder / "run.json").read_text())
    assert value["unwritten"] == [lacking]
    jsonschema.validate(value, schema("run"))
    assert [each["path"] for each in record.artifacts] == ["outputs/notes.txt"]
    assert orch.down(folder=folder).proven_gone


def test_where_none_was_written_all_that_was_made_comes_home_and_the_call_fails(folder: Path) -> None:
    """Nothing that the run made is lost with its machine because the profile calls it by another name."""
    leased(folder, "out")
    with pytest.raises(orch.ResultsLost, match=r"wrote none of the outputs .* names: out") as none:
        orch.train(run_id="one", folder=folder)
    assert none.value.exit_code == 14
    record = none.value.record
    assert isinstance(record, orch.RunRecord)
    assert record.wrote_no_output
    assert (record.folder / "outputs/output/model.keras").read_text() == "weights"
    with pytest.raises(orch.ResultsLost):
        orch.pull("one", folder=folder)
    assert orch.down(folder=folder).proven_gone


def test_a_run_that_failed_ends_as_it_failed(folder: Path) -> None:
    leased(folder, "out", "raise SystemExit(3)\n")
    with pytest.raises(orch.RunFailed) as failed:
        orch.train(run_id="one", folder=folder)
    assert failed.value.exit_code == 6
    record = failed.value.record
    assert isinstance(record, orch.RunRecord)
    assert [each["nearest"] for each in record.unwritten] == [None]
    assert orch.down(folder=folder).proven_gone


def test_an_old_file_of_the_project_is_no_output(folder: Path) -> None:
    """It was sent with the code, and the run did not write it."""
    (folder / "out").mkdir(parents=True)
    (folder / "out" / "model.keras").write_text("last month's")
    leased(folder, "out/*.keras, notes.txt")
    record = orch.train(run_id="one", folder=folder)
    assert [each["pattern"] for each in record.unwritten] == ["out/*.keras"]
    assert orch.down(folder=folder).proven_gone


def test_outputs_that_were_written_are_not_named(folder: Path) -> None:
    leased(folder, '"output/**", "*.txt"')
    record = orch.train(run_id="one", folder=folder)
    assert record.unwritten == []
    assert "unwritten" not in summary(record)
    assert orch.down(folder=folder).proven_gone
