"""A run that passes becomes the current model; one that does not is home all the same, and says why."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import orchestrator as orch
from orchestrator import cli
from orchestrator.api.schemas import schema
from orchestrator.errors import Changed, NotAccepted, UsageError
from orchestrator.model import RunRecord, Silent
from orchestrator.model.acceptance import How
from orchestrator.model.run_json import Exited
from orchestrator.profile import load
from orchestrator.promotion import gate
from orchestrator.promotion.registry import Registry, Version
from orchestrator.runs import record_file
from orchestrator.session.project import Project
from orchestrator.storage import open_store
from tests.unit import here_cloud

GATE = 'accept: {metrics: {accuracy: ">= 0.9"}, not_worse: {accuracy: 0.01}}\n'


def project(folder: Path, more: str = GATE) -> Project:
    here_cloud.project(folder, "pass\n", more=more)
    return Project(folder)


def ended(project: Project, run_id: str, accuracy: float) -> RunRecord:
    """The record of a run that succeeded, as it came home."""
    folder = project.run(run_id)
    folder.mkdir(parents=True)
    exit_: Exited = {"code": 0, "signal": None, "reason": "completed"}
    record = RunRecord(run_id, str(folder), exit_, metrics={"accuracy": accuracy})
    record_file.write(record)
    return record


def judged(project: Project, record: RunRecord) -> RunRecord:
    return gate.judge(project, load(project.root / "orch.yaml"), record, "train", Silent())


def current(project: Project, name: str = "current") -> str | None:
    link = project.root / "models" / name
    return link.resolve().name if link.is_symlink() else None


def test_without_a_gate_nothing_is_promoted(tmp_path: Path) -> None:
    at = project(tmp_path, "")
    record = ended(at, "one", 0.95)
    assert judged(at, record) is record
    assert not (tmp_path / "models").exists() and orch.models(folder=tmp_path) == []


def test_each_accepted_run_takes_the_place_and_a_refused_one_leaves_it(tmp_path: Path) -> None:
    at = project(tmp_path)
    first = judged(at, ended(at, "one", 0.95))
    assert current(at) == "one" and (tmp_path / "models/current/run.json").is_file()
    assert first.acceptance == {
        "model": "current",
        "accepted": True,
        "refusals": [],
        "compared_with": None,
    }
    judged(at, ended(at, "two", 0.945))
    assert current(at) == "two"
    with pytest.raises(NotAccepted) as refused:
        judged(at, ended(at, "three", 0.92))
    assert "accuracy is 0.92, worse than 0.935, the limit that two sets" in refused.value.message
    assert "models/current stays two" in str(refused.value.exists)
    assert refused.value.exit_code == 20 and not refused.value.worth_repeating
    assert current(at) == "two"
    kept = json.loads((at.run("three") / "run.json").read_text())
    assert kept["acceptance"]["accepted"] is False and kept["acceptance"]["compared_with"] == "two"
    jsonschema.Draft202012Validator(schema("run")).validate(kept)


def test_a_call_that_is_repeated_promotes_once_and_not_what_was_rolled_back(tmp_path: Path) -> None:
    at = project(tmp_path)
    one, two = (judged(at, ended(at, name, 0.95)) for name in ("one", "two"))
    assert judged(at, one).acceptance == one.acceptance
    assert current(at) == "two"
    assert orch.rollback(folder=tmp_path).history.current.run_id == "one"  # type: ignore[union-attr]
    assert current(at) == "one"
    assert judged(at, two).acceptance == two.acceptance
    assert current(at) == "one"
    (model,) = orch.models(folder=tmp_path)
    assert [(each.run_id, each.how) for each in model.history.promotions] == [
        ("one", How.ACCEPTED),
        ("two", How.ACCEPTED),
        ("one", How.ROLLBACK),
    ]


def test_a_gate_that_was_loosened_accepts_the_same_record(tmp_path: Path) -> None:
    at = project(tmp_path)
    record = ended(at, "one", 0.85)
    with pytest.raises(NotAccepted):
        judged(at, record)
    profile = tmp_path / "orch.yaml"
    profile.write_text(profile.read_text().replace(">= 0.9", ">= 0.8"))
    assert (judged(at, record).acceptance or {})["accepted"]
    assert current(at) == "one"


@pytest.mark.parametrize("killed_at", ["link", "record"])
def test_killed_between_its_effects_it_is_finished_by_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_at: str
) -> None:
    at = project(tmp_path)
    record = ended(at, "one", 0.95)

    def dies(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Registry, "settle", dies) if killed_at == "link" else patched.setattr(
            gate.record_file, "write", dies
        )
        with pytest.raises(KeyboardInterrupt):
            judged(at, record)
    if killed_at == "link":
        assert current(at) is None
        assert orch.models(folder=tmp_path)[0].history.current
        assert current(at) == "one"
    assert (judged(at, record).acceptance or {})["accepted"]
    (model,) = orch.models(folder=tmp_path)
    assert len(model.history.promotions) == 1 and current(at) == "one"


def test_a_folder_of_the_projects_own_stays_and_is_sent(tmp_path: Path) -> None:
    at = project(tmp_path)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "net.py").write_text("LAYERS = 2\n")
    judged(at, ended(at, "one", 0.95))
    assert sorted(path.name for path in (tmp_path / "models").iterdir()) == ["current", "net.py"]
    from orchestrator import sync
    from orchestrator.session.trees import code_ignored

    sent = sync.members(tmp_path, ignore=code_ignored(load(tmp_path / "orch.yaml")))
    assert {path for path in sent if path.startswith("models")} == {"models/net.py"}


def test_a_file_in_the_place_of_the_link_is_not_replaced(tmp_path: Path) -> None:
    at = project(tmp_path)
    (tmp_path / "models" / "current").mkdir(parents=True)
    with pytest.raises(UsageError, match="not a link that orch made"):
        judged(at, ended(at, "one", 0.95))
    assert (tmp_path / "models" / "current").is_dir()


def test_models_of_two_names_do_not_meet(tmp_path: Path) -> None:
    at = project(tmp_path, GATE.replace("{", "{name: fraud, ", 1))
    judged(at, ended(at, "one", 0.95))
    assert (current(at), current(at, "fraud")) == (None, "one")
    with pytest.raises(UsageError, match="no model current in this project; there is: fraud"):
        orch.rollback(folder=tmp_path)


def test_rollback_refuses_what_it_cannot_lead_to(tmp_path: Path) -> None:
    at = project(tmp_path)
    with pytest.raises(UsageError, match="No model was accepted"):
        orch.rollback(folder=tmp_path)
    judged(at, ended(at, "one", 0.95))
    with pytest.raises(UsageError, match="No model other"):
        orch.rollback(folder=tmp_path)
    judged(at, ended(at, "two", 0.95))
    with pytest.raises(UsageError, match="never accepted") as unknown:
        orch.rollback("onne", folder=tmp_path)
    assert unknown.value.next_command == "orch rollback one"
    at.run("one").rename(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="files of one are not on this computer"):
        orch.rollback(folder=tmp_path)
    assert current(at) == "two"


@pytest.mark.parametrize("content", [b"", b"nonsense", b"[]", b'{"name": 5}', b'{"name": "../x"}'])
def test_a_damaged_history_is_named_and_kept(tmp_path: Path, content: bytes) -> None:
    at = project(tmp_path)
    judged(at, ended(at, "one", 0.95))
    file = tmp_path / ".orch/models/current.json"
    file.write_bytes(content)
    with pytest.raises(UsageError, match="cannot be read") as damaged:
        judged(at, ended(at, "two", 0.95))
    assert "mv " in str(damaged.value.next_command) and file.read_bytes() == content


class TestStore:
    """With a store its copy is the truth, and two clients never overwrite each other."""

    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return (tmp_path / "store").as_uri()

    def client(self, folder: Path, url: str) -> Project:
        return project(folder, f"{GATE}store: {url}\n")

    def test_another_computer_is_held_against_it(self, tmp_path: Path, url: str) -> None:
        here, there = self.client(tmp_path / "a", url), self.client(tmp_path / "b", url)
        judged(here, ended(here, "one", 0.99))
        with pytest.raises(NotAccepted, match="the limit that one sets"):
            judged(there, ended(there, "two", 0.95))
        judged(there, ended(there, "three", 0.985))
        assert (current(here), current(there)) == ("one", "three")
        (model,) = orch.models(here.root / "orch.yaml", folder=here.root)
        assert model.history.current and model.history.current.run_id == "three"
        assert model.here == {"one"} and current(here) == "one"  # its files are not here
        stored = json.loads(open_store(url).get("runs/three/run.json"))
        assert stored["acceptance"]["accepted"] is True

    def test_the_slower_of_two_decides_again(
        self, tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        here, there = self.client(tmp_path / "a", url), self.client(tmp_path / "b", url)
        promote, raced = Registry.promote, []

        def slower(self: Registry, seen: Version, *facts: Any) -> None:
            if self.project == here and not raced:
                raced.append(judged(there, ended(there, "better", 0.99)))
            promote(self, seen, *facts)

        monkeypatch.setattr(Registry, "promote", slower)
        with pytest.raises(NotAccepted, match="the limit that better sets"):
            judged(here, ended(here, "worse", 0.95))
        history = Registry(there, "current", url).read().history
        assert [each.run_id for each in history.promotions] == ["better"]

    def test_a_store_that_does_not_answer_leaves_the_copy(self, tmp_path: Path, url: str) -> None:
        here = self.client(tmp_path / "a", url)
        judged(here, ended(here, "one", 0.99))
        registry = Registry(here, "current", url)
        registry.settle(replace(registry.read_here(), store="s3://no"))
        (model,) = orch.models(folder=here.root)
        assert model.stale and model.history.current

    def test_of_two_writers_of_one_version_one_is_told(self, tmp_path: Path, url: str) -> None:
        here = self.client(tmp_path / "a", url)
        registry = Registry(here, "current", url)
        seen = registry.read()
        registry.promote(seen, "one", 1.0, How.ACCEPTED, {})
        with pytest.raises(Changed):
            registry.promote(seen, "two", 1.0, How.ACCEPTED, {})


def test_the_verbs_say_what_is_current(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    at = project(tmp_path)

    def says(*argv: str) -> str:
        monkeypatch.setattr("sys.argv", ["orch", *argv])
        with pytest.raises(SystemExit) as left:
            cli.main()
        assert not left.value.code
        return capsys.readouterr().out

    assert "No model was accepted" in says("models")
    for name in ("one", "two"):
        judged(at, ended(at, name, 0.95))
    assert "models/current is two" in says("models")
    (model,) = json.loads(says("models", "--json"))["models"]
    assert (model["current"], [each["run_id"] for each in model["promotions"]]) == ("two", ["two", "one"])
    assert "models/current is one now" in says("rollback")
    assert json.loads(says("rollback", "two", "--json"))["current"] == "two"
