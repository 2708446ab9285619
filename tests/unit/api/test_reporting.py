"""Which run a report is of, and where it is written."""

from __future__ import annotations

import hashlib
import json
import zipfile
from dataclasses import asdict
from pathlib import Path

import pytest

from orchestrator import api
from orchestrator.errors import UsageError
from orchestrator.model import Entry
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


def written(path: Path, saved: str, weights: bytes) -> dict[str, object]:
    """Write a model file as Keras does; returns its entry in the record."""
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("metadata.json", json.dumps({"keras_version": "3", "date_saved": saved}))
        archive.writestr("config.json", "{}")
        archive.writestr("model.weights.h5", weights)
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    return {"path": "outputs/model.keras", "sha256": digest, "bytes": len(content)}


@pytest.mark.parametrize("weights", [b"equal", b"other"])
def test_a_model_that_was_saved_at_another_time_is_no_other_result(tmp_path: Path, weights: bytes) -> None:
    models = {"digits-1": ("12:00", b"equal"), "digits-2": ("12:05", weights)}
    for name, (saved, content) in models.items():
        model = tmp_path / name / "model.keras"
        folder = folder_of(tmp_path, record(run_id=name, artifacts=[written(model, saved, content)]))
        (folder / "outputs").mkdir()
        model.rename(folder / "outputs/model.keras")
    found = {fact.name: fact for fact in api.compare("digits-1", "digits-2", folder=tmp_path).recorded}
    same = weights == b"equal"
    assert found["results"].equal is same
    words = "1 of 1 file of the same name: the same content" if same else "0 of 1 file of the same name: "
    assert (found["results"].a or "").startswith(words)


def test_the_files_in_which_the_code_differs_are_named(tmp_path: Path) -> None:
    kept = {
        "digits-1": {"train.py": "1", "same.py": "2"},
        "digits-2": {"train.py": "3", "same.py": "2", "b.py": "4"},
    }
    for name, files in kept.items():
        code = {"digest": name, "files": len(files)}
        folder = folder_of(tmp_path, record(run_id=name, code=code))
        entries = [asdict(Entry(path, "file", 1, 0o644, number * 64)) for path, number in files.items()]
        (folder / "code").mkdir()
        (folder / "code/tree.json").write_text(json.dumps({"entries": entries}))
    found = api.compare("digits-1", "digits-2", folder=tmp_path)
    assert "The code differs in b.py, train.py." in found.detail
    (tmp_path / "runs/digits-2/code/tree.json").write_text("{")
    assert "The code differs in" not in api.compare("digits-1", "digits-2", folder=tmp_path).detail


def test_packages_that_differ_are_named_with_both_versions(tmp_path: Path) -> None:
    one = {"numpy": "2.0", "keras": "3.1"}
    bills = {"digits-1": one, "digits-2": {**one, "numpy": "2.1", "a": "1"}}
    for name, packages in bills.items():
        folder = folder_of(tmp_path, record(run_id=name))
        components = [{"type": "library", "name": each, "version": of} for each, of in packages.items()]
        components.append({"type": "platform", "name": "cpython", "version": name})
        (folder / "sbom.cdx.json").write_text(json.dumps({"components": components}))
    found = api.compare("digits-1", "digits-2", folder=tmp_path)
    assert "Packages that differ: a (absent, 1), numpy (2.0, 2.1)." in found.detail
    (tmp_path / "runs/digits-1/sbom.cdx.json").unlink()
    assert "Packages that differ" not in api.compare("digits-1", "digits-2", folder=tmp_path).detail
