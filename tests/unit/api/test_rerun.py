"""`rerun`: a run that is repeated on its own code, whatever the project has become."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import orchestrator as orch
from orchestrator.api.schemas import schema as orch_schema
from orchestrator.cli import main
from orchestrator.model.outcomes import Conclusion
from orchestrator.runs import record_file
from orchestrator.session.project import Project
from tests.unit import here_cloud
from tests.unit.here_cloud import HereCloud

pytestmark = pytest.mark.processes

FIRST = (
    "import json, pathlib\n"
    "from lib import value\n"
    "out = pathlib.Path('out'); out.mkdir()\n"
    "(out / 'weights.txt').write_text(value() + pathlib.Path('data/x.txt').read_text())\n"
    "(out / 'metrics.json').write_text(json.dumps({'loss': 0.5}))\n"
)
MORE = "  outputs: [out]\ndata:\n  - source: data\n"


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b.example"]
    done = subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


class Repeated:
    """A project in git with uncommitted changes, and its run `first`."""

    def __init__(self, folder: Path, cloud: HereCloud) -> None:
        self.folder, self.cloud = folder, cloud
        self.profile = here_cloud.project(folder, FIRST, more=MORE)
        (folder / "lib.py").write_text("def value(): return 'committed'\n")
        (folder / "data").mkdir()
        (folder / "data/x.txt").write_text("data")
        (folder / ".gitignore").write_text("/runs/\n/data/\n")
        git(folder, "init", "-qb", "work")
        git(folder, "add", "-A")
        git(folder, "commit", "-qm", "first")
        (folder / "lib.py").write_text("def value(): return 'uncommitted'\n")
        (folder / "notes.md").write_text("new, and not committed")

    def change(self) -> None:
        """Make of the project something else, and commit it."""
        (self.folder / "lib.py").write_text("def value(): return 'later'\n")
        (self.folder / "train.py").write_text("raise SystemExit('another program')\n")
        (self.folder / "notes.md").unlink()
        self.profile.write_text(self.profile.read_text().replace("train.py", "train.py --later"))
        git(self.folder, "add", "-A")
        git(self.folder, "commit", "-qm", "later")

    def written(self, run_id: str) -> str:
        return (self.folder / f"runs/{run_id}/outputs/out/weights.txt").read_text()

    def cli(self, monkeypatch: pytest.MonkeyPatch, *argv: str) -> int:
        monkeypatch.chdir(self.folder)
        monkeypatch.setattr(sys, "argv", ["orch", *argv])
        with pytest.raises(SystemExit) as left:
            main()
        return int(left.value.code or 0)

    def state(self) -> dict[str, bytes]:
        """The user's files, with git's own index."""
        paths = (p for p in self.folder.rglob("*") if p.is_file())
        kept = (
            p for p in paths if not {"runs", ".orch", "objects", "logs"} & {*p.relative_to(self.folder).parts}
        )
        return {str(p): p.read_bytes() for p in kept}


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repeated:
    cloud = here_cloud.cloud(tmp_path / "machines", monkeypatch, prepared=True)
    return Repeated(tmp_path / "p", cloud)


def test_the_code_and_profile_of_then_run_again_on_a_machine_that_is_made_and_deleted(
    made: Repeated, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = orch.run(made.profile, run_id="first", folder=made.folder)
    assert first.code is not None
    facts = first.code["git"]
    assert (facts["branch"], facts["dirty"], facts["changed"]) == ("work", True, 2)
    assert facts["revision"] == git(made.folder, "rev-parse", "HEAD")
    jsonschema.Draft202012Validator(orch_schema("run")).validate(
        json.loads((made.folder / "runs/first/run.json").read_text())
    )
    diff = (made.folder / "runs/first/code/changes.diff").read_text()
    assert "+def value(): return 'uncommitted'" in diff and "+new, and not committed" in diff
    (listed,) = orch.history(folder=made.folder).runs
    assert listed.code == first.code

    made.change()
    before = made.state()
    assert made.cli(monkeypatch, "rerun", "first", "--run-id", "second", "--yes", "--json") == 0
    value = json.loads(capsys.readouterr().out)
    assert (value["schema"], value["conclusion"]) == ("orch.rerun/1", "IDENTICAL")
    assert [each["found"] for each in value["outputs"]] == ["bytes", "bytes"]
    assert made.written("second") == "uncommitteddata" == made.written("first")
    assert made.state() == before, "no file of the user was touched"
    assert made.cloud.alive() == []
    second = record_file.read(made.folder / "runs/second")
    assert second is not None
    assert (second.code, second.request) == (first.code, first.request)
    assert second.command == ["python", "train.py"]

    again = orch.rerun("second", run_id="third", folder=made.folder)
    assert again.same and again.record.run_id == "third"


def test_data_that_changed_are_refused_before_anything_is_rented(
    made: Repeated, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    orch.run(made.profile, run_id="first", folder=made.folder)
    (made.folder / "data/x.txt").write_text("other")
    leases = Project.at(made.folder).leases()
    with pytest.raises(orch.UsageError) as refused:
        orch.rerun("first", run_id="second", folder=made.folder)
    said = "the data: 1 file of 4 bytes then, 1 file of 5 bytes now, data/x.txt changed"
    assert said in refused.value.message
    assert "Nothing was started or rented" in (refused.value.exists or "")
    assert "orch rerun first" in (refused.value.next_command or "")
    assert leases and [each.id for each in Project.at(made.folder).leases()] == [each.id for each in leases]
    assert not (made.folder / "runs/second").exists() and made.cloud.alive() == []
    assert not list((made.folder / ".orch/reruns").glob("*"))
    (made.folder / "data/x.txt").unlink()
    (made.folder / "data").rmdir()
    assert made.cli(monkeypatch, "rerun", "first") == 2
    assert "its data" in (said := capsys.readouterr().err) and "are gone" in said
    assert made.cli(monkeypatch, "rerun", "frist") == 2
    assert "Similar ids: first" in capsys.readouterr().err


def test_on_a_leased_machine_the_lease_keeps_its_profile_and_a_run_that_differs_has_code_7(
    made: Repeated, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (made.folder / "lib.py").write_text("import uuid\ndef value(): return str(uuid.uuid4())\n")
    orch.up(made.profile, folder=made.folder)
    orch.train(run_id="first", folder=made.folder)
    made.change()
    (lease,) = orch.status(folder=made.folder)
    assert made.cli(monkeypatch, "rerun", "first", "--run-id", "second") == 7
    said = capsys.readouterr().out
    assert "first and second: not the same" in said
    assert "1 of 2 files bit for bit the same; 1 not, the first:" in said
    assert "outputs/out/weights.txt: other bytes" in said
    assert made.cli(monkeypatch, "report", "first", "second") == 0
    said = capsys.readouterr().out
    assert "first and second are not the same: 1 of 2 output files differs (outputs/out/weights.txt: " in said
    (after,) = orch.status(folder=made.folder)
    assert (after.lease, after.profile) == (lease.lease, lease.profile)
    with pytest.raises(orch.RunFailed):
        orch.train(run_id="now", folder=made.folder)  # the project of today
    orch.down(folder=made.folder, discard=True)


def test_outside_git_the_code_is_kept_and_what_may_be_secret_is_not(made: Repeated) -> None:
    subprocess.run(["rm", "-r", ".git"], cwd=made.folder, check=True)
    (made.folder / ".env").write_text("TOKEN=hidden")
    first = orch.run(made.profile, run_id="first", folder=made.folder)
    assert first.code is not None and "git" not in first.code
    assert first.code["not_kept"] == [{"path": ".env", "why": "secret"}]
    kept = made.folder / "runs/first/code"
    assert b"hidden" not in b"".join(path.read_bytes() for path in kept.iterdir())
    (made.folder / "lib.py").write_text("def value(): return 'later'\n")
    assert orch.rerun("first", run_id="second", folder=made.folder).same
    (made.folder / ".env").write_text("TOKEN=other")
    with pytest.raises(orch.UsageError, match=r"\.env \(not kept, because by its name it may hold secrets\)"):
        orch.rerun("first", run_id="third", folder=made.folder)


def test_a_shell_that_changes_numbers_and_values_that_were_withheld_are_refused(
    made: Repeated, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [each for each in os.environ if each.startswith(("OMP_", "TF_", "ORCH_SET_"))]:
        monkeypatch.delenv(name)
    orch.run(made.profile, run_id="first", folder=made.folder, overrides=["train.env.MODE=fast"])
    record = (made.folder / "runs/first/run.json").read_text()
    assert '"train.env.MODE"' in record and "fast" not in record

    def refused(*overrides: str) -> str:
        with pytest.raises(orch.UsageError) as error:
            orch.rerun("first", run_id="second", folder=made.folder, overrides=overrides)
        return error.value.next_command or ""

    assert refused() == "orch rerun first --set train.env.MODE=…"
    assert refused("train.env.OTHER=1").startswith("orch train --set")
    monkeypatch.setenv("ORCH_SET_TRAIN__COMMAND", "python other.py")
    assert refused("train.env.MODE=fast") == "env -u ORCH_SET_TRAIN__COMMAND orch rerun first"
    monkeypatch.delenv("ORCH_SET_TRAIN__COMMAND")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert refused("train.env.MODE=fast") == "env -u OMP_NUM_THREADS orch rerun first"
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert orch.rerun("first", run_id="second", folder=made.folder, overrides=["train.env.MODE=fast"]).same


def test_a_record_of_an_older_orch_is_read_and_repeated_while_its_code_is_there(made: Repeated) -> None:
    orch.run(made.profile, run_id="first", folder=made.folder)
    run = made.folder / "runs/first"
    old: dict[str, Any] = json.loads((run / "run.json").read_text())
    del old["request"]
    old["code"] = {key: old["code"][key] for key in ("digest", "files")}
    (run / "run.json").write_text(json.dumps(old))
    subprocess.run(["rm", "-r", "code"], cwd=run, check=True)
    done = orch.rerun("first", run_id="second", folder=made.folder)
    assert done.conclusion == Conclusion.IDENTICAL
    (made.folder / "lib.py").write_text("def value(): return 'later'\n")
    with pytest.raises(orch.UsageError, match="the code has changed since, and was not kept"):
        orch.rerun("first", run_id="third", folder=made.folder)


@pytest.mark.parametrize("key", ["code", "request"])
@pytest.mark.parametrize("value", [{}, {"digest": "x", "git": {}}, [], "text", 1, {"profile": 1}])
def test_a_record_with_damaged_parts_is_named_and_nothing_is_rented(
    tmp_path: Path, key: str, value: Any
) -> None:
    record = {
        "schema": "orch.run/1", "run_id": "first", "command": ["true"], "machine": {"id": "m"},
        "exit": {"code": 0, "reason": "completed"}, "code": {"digest": "a", "files": 1}, "request": None,
    }  # fmt: skip
    run = tmp_path / "runs/first"
    run.mkdir(parents=True)
    (run / "run.json").write_text(json.dumps({**record, key: value}))
    with pytest.raises(orch.UsageError, match="is damaged: it is not the record of a run") as refused:
        orch.rerun("first", folder=tmp_path)
    assert "orch pull first" in (refused.value.next_command or "")


def test_an_interrupt_names_the_command_that_goes_on(made: Repeated, monkeypatch: pytest.MonkeyPatch) -> None:
    orch.run(made.profile, run_id="first", folder=made.folder)
    made.change()

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("orchestrator.jobs.start", interrupt)
        with pytest.raises(KeyboardInterrupt) as pressed:
            orch.rerun("first", run_id="second", folder=made.folder)
    assert "Next: orch rerun first --run-id second" in str(pressed.value)
    (made.folder / "data/x.txt").write_text("other")
    with pytest.raises(orch.UsageError):
        orch.rerun("first", run_id="second", folder=made.folder)
    (made.folder / "data/x.txt").write_text("data")
    assert orch.rerun("first", run_id="second", folder=made.folder).same
    assert made.cloud.alive() == []
    assert not list((made.folder / ".orch/reruns").glob("*"))
