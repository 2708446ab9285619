"""What a machine itself puts into its store: nobody need follow it, and nothing is lost with it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import orchestrator as orch
from orchestrator.errors import LocalError, StorageError, StorageFault
from orchestrator.leases import settle as settling
from orchestrator.report.run import summary
from orchestrator.storage import Store, open_store
from orchestrator.training import granted
from tests.clouds.signing import new_bucket
from tests.e2e import interrupted
from tests.e2e.project import until
from tests.said import Said
from tests.unit import here_cloud
from tests.unit.here_cloud import HereCloud

LEAVES = """
import pathlib
pathlib.Path("out").mkdir()
pathlib.Path("out/ü %").write_text("left")
pathlib.Path("out/labels.txt").write_text("a b")
print("hello")
"""


@pytest.fixture(params=["s3", "gs"])
def bucket(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    return new_bucket(request, monkeypatch, tmp_path)


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HereCloud:
    return here_cloud.cloud(tmp_path / "machines", monkeypatch, prepared=True)


def take_back(cloud: HereCloud) -> None:
    (machine,) = cloud.alive()
    cloud.take_back(machine)


def record_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "runs/one/run.json").read_text())
    return found


def test_results_are_not_lost_with_a_machine_that_nobody_followed(
    bucket: str, cloud: HereCloud, tmp_path: Path
) -> None:
    folder, store = tmp_path / "p", open_store(bucket)
    held = orch.up(here_cloud.project(folder, LEAVES, more=f"store: {bucket}\n"), folder=folder)
    orch.train(run_id="one", folder=folder, detach=True)
    until(lambda: store.head("runs/one/attempts/1/state.json") is not None, 60)
    take_back(cloud)
    pulled = orch.pull("one", folder=folder)
    assert pulled.exit["reason"] == "completed"
    record = record_of(folder)
    assert [each["path"] for each in record["artifacts"]] == ["outputs/out/labels.txt", "outputs/out/ü %"]
    assert (folder / "runs/one/outputs/out/ü %").read_text() == "left"
    assert record["model_check"]["not_checked"] == "machine-gone"
    assert "out/labels.txt: not checked: its machine is gone" in summary(pulled)
    assert (folder / "runs/one/output.log").read_text() == "hello\n"
    assert record["machine"]["id"] == held.machine
    assert orch.down(folder=folder).lost == ()
    assert store.head("runs/one/run.json") is not None


def test_another_folder_goes_on_with_a_run_whose_machine_is_gone(
    bucket: str, cloud: HereCloud, tmp_path: Path
) -> None:
    """It has the project's files, and of the run nothing but what the store has."""
    script = interrupted.SCRIPT.replace("LOST", "[(1, 3)]")
    more = f"{interrupted.MORE}store: {bucket}/runs\nledger: {bucket}/team\n"
    folder, other, store = tmp_path / "p", tmp_path / "other/p", open_store(f"{bucket}/runs")
    orch.up(here_cloud.project(folder, script, more=more), folder=folder)
    orch.train(run_id="one", folder=folder, detach=True)
    until(lambda: saved(store) == 3, 60)
    take_back(cloud)
    profile = here_cloud.project(other, script, more=more)
    record = orch.run(profile, run_id="one", folder=other)
    assert [each["reason"] for each in record.attempts] == ["preempted", "completed"]
    assert record.attempts[1]["resumed_from"]["attempt"] == 1
    log = (other / "runs/one/output.log").read_text()
    assert [line for line in log.splitlines() if line.startswith("from")] == ["from 0", "from 3"]
    assert json.loads((other / "runs/one/outputs/weights.json").read_text()) == interrupted.expected()


def test_who_follows_sends_nothing_twice(bucket: str, cloud: HereCloud, tmp_path: Path) -> None:
    folder, store = tmp_path / "p", open_store(bucket)
    script = interrupted.SCRIPT.replace("LOST", "[]").replace("sleep(600)", "sleep(0)")
    script = script.replace('print("saved"', 'time.sleep(2); print("saved"')
    more = f"{interrupted.MORE}store: {bucket}\n"
    orch.up(here_cloud.project(folder, script, more=more), folder=folder)
    record = orch.train(run_id="one", folder=folder)
    assert record.exit["reason"] == "completed"
    keys = [each.key.removeprefix("runs/one/") for each in store.list()]
    copies = {key.split("/")[3] for key in keys if "/checkpoints/" in key}
    assert copies <= {"slot-0", "slot-1"} and copies
    assert {"run.json", "attempts/1/state.json", "attempts/1/outputs/weights.json"} <= set(keys)
    log = store.get("runs/one/attempts/1/output.log")
    assert log == (folder / "runs/one/output.log").read_bytes()
    assert (folder / "runs/one/checkpoints").is_dir(), "they come here, too"
    no_form_is_below(cloud.root)


def no_form_is_below(folder: Path) -> None:
    """What may write to the bucket is in no file of the machine."""
    files = [path for path in folder.glob("*/runs/**/*") if path.is_file() and not path.is_symlink()]
    texts = [path.read_bytes().lower() for path in files if path.stat().st_size < 1 << 20]
    assert texts and not any(word in text for text in texts for word in (b'"policy":', b"x-goog-signature"))


def test_where_the_machine_may_send_no_more_the_one_who_follows_does(
    bucket: str, cloud: HereCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, store = tmp_path / "p", open_store(bucket)
    given = granted.upload_grant

    def ended(*args: Any) -> Any:
        grant = given(*args)
        return grant and replace(grant, prefix="other/")

    monkeypatch.setattr("orchestrator.training.start.upload_grant", ended)
    orch.up(here_cloud.project(folder, LEAVES, more=f"store: {bucket}\n"), folder=folder)
    orch.train(run_id="one", folder=folder)
    keys = [each.key.removeprefix("runs/one/") for each in store.list()]
    assert {"run.json", "attempts/1/outputs.json", "attempts/1/outputs/out/%C3%BC %25"} <= set(keys)
    assert "attempts/1/state.json" not in keys
    (machine,) = cloud.alive()
    assert machine


@pytest.mark.parametrize("bucket", ["gs"], indirect=True)
@pytest.mark.usefixtures("cloud")
def test_credentials_that_cannot_sign_are_named_and_who_follows_sends(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS")
    folder, store, said = tmp_path / "p", open_store(bucket), Said()
    orch.up(here_cloud.project(folder, LEAVES, more=f"store: {bucket}\n"), folder=folder)
    orch.train(run_id="one", folder=folder, progress=said)
    assert any("cannot sign" in line and "logs -f" in line for line in said.lines)
    assert store.head("runs/one/run.json") is not None
    orch.down(folder=folder)


def test_while_the_store_does_not_answer_nothing_is_called_lost(
    bucket: str, cloud: HereCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, store = tmp_path / "p", open_store(bucket)
    orch.up(here_cloud.project(folder, LEAVES, more=f"store: {bucket}\n"), folder=folder)
    orch.train(run_id="one", folder=folder, detach=True)
    until(lambda: store.head("runs/one/attempts/1/state.json") is not None, 60)
    take_back(cloud)
    with monkeypatch.context() as patched:
        patched.setattr(settling, "open_store", refuse)
        with pytest.raises(StorageError):
            orch.pull("one", folder=folder)
        orch.status(folder=folder)
    assert orch.pull("one", folder=folder).exit["reason"] == "completed"
    orch.down(folder=folder)


@pytest.mark.parametrize("where", ["gone", "a file"])
def test_a_store_that_takes_nothing_stops_before_anything_is_rented(
    bucket: str, cloud: HereCloud, tmp_path: Path, where: str
) -> None:
    (tmp_path / "a file").write_text("")
    url = f"{bucket}-gone/runs" if where == "gone" else f"file://{tmp_path}/a%20file/runs"
    profile = here_cloud.project(tmp_path / "p", LEAVES, more=f"store: {url}\n")
    with pytest.raises((StorageError, LocalError)) as caught:
        orch.up(profile, folder=tmp_path / "p")
    assert caught.value.exists == "Nothing was created; nothing costs money." and caught.value.next_command
    assert cloud.alive() == []


def refuse(_url: str) -> Store:
    raise StorageError(StorageFault.UNREACHABLE, "The store does not answer.")


def saved(store: Store) -> int:
    """The step of the checkpoint that the machine put there; 0 where there is none."""
    slot = "runs/one/attempts/1/checkpoints/slot-1"
    if store.head(f"{slot}/manifest.json") is None:
        return 0
    return int(json.loads(store.get(f"{slot}/000000"))["step"])
