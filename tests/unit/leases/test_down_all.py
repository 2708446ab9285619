"""down --all: only this user's machines, listed before, and none that something would be lost with."""

from __future__ import annotations

import json
import multiprocessing
import shlex
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from orchestrator import providers
from orchestrator.cli.app import app
from orchestrator.errors import LocalError, UsageError
from orchestrator.leases.down import down
from orchestrator.leases.down_all import Target
from orchestrator.leases.machine import receipt
from orchestrator.model import LABEL_OWNER, Machine
from orchestrator.providers.memory import MemoryProvider
from orchestrator.report.lease import down_text, targets_text
from orchestrator.session import machines
from orchestrator.session import owner as identity
from orchestrator.session.project import Project
from tests.unit.memory_cloud import intent, leased, opened_lease, serve, spec_for


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MemoryProvider:
    monkeypatch.setattr(machines, "_POLL_SECONDS", 0.0)
    monkeypatch.setenv("ORCH_STATE_HOME", str(tmp_path / "state"))
    made = MemoryProvider()
    serve(made, monkeypatch, "memory", "local")
    return made


def lease(folder: Path, name: str, cloud: MemoryProvider, owner: str | None = None) -> Machine:
    spec = spec_for(name)
    spec = replace(spec, labels={**spec.labels, LABEL_OWNER: owner or identity.owner(cloud)})
    identity.note_folder(name, folder)
    return leased(Project(folder), name, cloud, spec)


def run(folder: Path, name: str, *, ended: bool = False, collected: bool = False) -> None:
    ledger = Project(folder).ledger(name)
    ledger.append("run.started", run_id="one", draft={"stack": {}, "data": {}, "parity": None, "timings": {}})
    if ended:
        ledger.append("run.ended", run_id="one", reason="completed")
    if collected:
        ledger.append("run.collected", run_id="one")


def other_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCH_STATE_HOME", str(tmp_path / "another home"))


def test_another_home_s_machine_is_listed_and_left(
    tmp_path: Path, cloud: MemoryProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, it was ended during its training without a question."""
    theirs = lease(tmp_path / "theirs", "a", cloud)
    run(tmp_path / "theirs", "a")
    other_user(tmp_path, monkeypatch)
    seen: list[Target] = []

    def approve(targets: Sequence[Target]) -> bool:
        seen.extend(targets)
        return True

    report = down(folder=tmp_path / "mine", everything=True, discard=True, approve=approve)
    assert (report.machines, len(cloud.alive())) == ((), 1)
    assert [(one.id, one.mine) for one in seen] == [(theirs.id, False)]
    text = targets_text([one.as_json() for one in seen])
    assert "keep" in text and theirs.labels[LABEL_OWNER] in text
    with pytest.raises(UsageError, match="may have an active run"):
        down(folder=tmp_path / "mine", everything=True, others=True)
    assert len(cloud.alive()) == 1
    assert down(folder=tmp_path / "mine", everything=True, others=True, discard=True).machines == (theirs.id,)


@pytest.mark.parametrize("ended", [False, True])
def test_runs_in_another_folder_of_mine_keep_their_machine(
    tmp_path: Path, cloud: MemoryProvider, ended: bool
) -> None:
    made = lease(tmp_path / "a", "a", cloud)
    idle = lease(tmp_path / "b", "b", cloud)
    run(tmp_path / "a", "a", ended=ended)
    with pytest.raises(UsageError) as refused:
        down(folder=tmp_path / "elsewhere", everything=True)
    assert ("not pulled" if ended else "may be running") in refused.value.message
    assert str(tmp_path / "a") in refused.value.message
    assert len(cloud.alive()) == 2
    report = down(folder=tmp_path / "elsewhere", everything=True, discard=True)
    assert set(report.machines) == {made.id, idle.id}
    assert Project(tmp_path / "a").open_leases() == []


def test_idle_machines_of_every_folder_are_ended_and_their_leases_closed(
    tmp_path: Path, cloud: MemoryProvider
) -> None:
    lease(tmp_path / "a", "a", cloud)
    run(tmp_path / "a", "a", ended=True, collected=True)
    down(folder=tmp_path / "elsewhere", everything=True)
    assert not cloud.alive()
    assert Project(tmp_path / "a").open_leases() == []
    assert list(identity.noted_folders()) == []


class Preview:
    """Approves, and keeps what it was shown. `meanwhile` happens while somebody thinks about it."""

    def __init__(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.seen: list[Target] = []
        self._meanwhile = meanwhile

    def __call__(self, targets: Sequence[Target]) -> bool:
        self.seen.extend(targets)
        self._meanwhile()
        return True


def test_what_the_preview_does_not_list_is_neither_settled_nor_summed(
    tmp_path: Path, cloud: MemoryProvider
) -> None:
    """A lease of another folder whose machine was taken back with results that nobody had."""
    listed = lease(tmp_path / "a", "a", cloud)
    gone = lease(tmp_path / "b", "b", cloud)
    run(tmp_path / "b", "b", ended=True)
    cloud.kill(gone)
    before = Project(tmp_path / "b").ledger("b").path.read_bytes()
    preview = Preview()
    report = down(folder=tmp_path / "a", everything=True, approve=preview)
    assert {one.id for one in preview.seen} == {listed.id}
    assert (report.leases, report.machines, report.lost) == (("a",), (listed.id,), ())
    assert report.cost == Project(tmp_path / "a").leases()[0].cost(0)
    assert Project(tmp_path / "b").ledger("b").path.read_bytes() == before
    assert report.left == ({"lease": "b", "folder": str(tmp_path / "b")},)
    assert f"cd {tmp_path / 'b'} && orch down b" in down_text(report)
    again = down(folder=tmp_path / "a", everything=True)
    assert (again.leases, again.cost, again.left) == ((), 0, report.left)
    assert "cd " in down_text(again) and "no leased machine" not in down_text(again)
    (told,) = down(folder=tmp_path / "b").lost
    assert told["run_id"] == "one"


def test_a_create_call_without_an_answer_is_listed_and_what_it_made_is_ended(
    tmp_path: Path, cloud: MemoryProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list lags behind while it is shown."""
    monkeypatch.setattr(machines, "_LIST_SECONDS", 0.0)
    monkeypatch.setattr(machines, "_CALL_SECONDS", 0.0)
    cloud.list_lag_s = 0.001
    serve(cloud, monkeypatch, "memory", "local")
    folder, spec = Project(tmp_path / "a"), spec_for("a")
    intent(opened_lease(folder, "a"), spec)
    identity.note_folder("a", folder.root)
    made = cloud.create(spec)
    cloud.list_nothing(4)
    preview = Preview()
    report = down(folder=tmp_path / "elsewhere", everything=True, clouds=["memory"], approve=preview)
    (shown,) = preview.seen
    assert (shown.lease, shown.certain, shown.price) == ("a", False, spec.offer.price)
    assert "of a" in targets_text([shown.as_json()]) and "may exist" in targets_text([shown.as_json()])
    assert report.machines == (made.id,)
    assert not cloud.alive()


def test_a_machine_that_was_made_after_the_list_is_left(tmp_path: Path, cloud: MemoryProvider) -> None:
    first = lease(tmp_path / "a", "a", cloud)

    def replaced() -> None:
        cloud.kill(first)
        made = cloud.create(spec_for("a", 1))
        Project(tmp_path / "a").ledger("a").record(receipt(1, made))
        lease(tmp_path / "b", "b", cloud)

    with pytest.raises(UsageError, match="was created after the list was shown") as refused:
        down(folder=tmp_path / "a", everything=True, approve=Preview(replaced))
    assert len(cloud.alive()) == 2
    assert "/h" in (refused.value.exists or "")
    assert [one.id for one in Project(tmp_path / "a").open_leases()] == ["a"]
    assert len(down(folder=tmp_path / "a", everything=True).machines) == 2


def test_a_lease_whose_ledger_does_not_tell_its_cloud_is_listed_with_its_machine(
    tmp_path: Path, cloud: MemoryProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(providers, "names", lambda: ("memory",))
    made = lease(tmp_path / "a", "a", cloud)
    path = Project(tmp_path / "a").ledger("a").path
    path.write_bytes(b"".join(b"#" + line for line in path.read_bytes().splitlines(keepends=True)))
    with pytest.raises(UsageError, match="it does not report its runs"):
        down(folder=tmp_path / "a", everything=True, clouds=["memory"])
    preview = Preview()
    report = down(folder=tmp_path / "a", everything=True, clouds=["memory"], approve=preview, discard=True)
    assert {(one.id, one.lease) for one in preview.seen} == {(made.id, "a")}
    assert "a" in report.leases and not cloud.alive()


def test_what_is_not_approved_stays(tmp_path: Path, cloud: MemoryProvider) -> None:
    lease(tmp_path / "a", "a", cloud)
    with pytest.raises(UsageError, match="Not approved"):
        down(folder=tmp_path / "a", everything=True, approve=lambda _: False)
    assert len(cloud.alive()) == 1


def test_a_machine_of_mine_without_its_ledger_needs_discard(tmp_path: Path, cloud: MemoryProvider) -> None:
    lease(tmp_path / "a", "a", cloud)
    Project(tmp_path / "a").ledger("a").path.unlink()
    with pytest.raises(UsageError, match="may have an active run"):
        down(folder=tmp_path, everything=True)
    assert len(down(folder=tmp_path, everything=True, discard=True).machines) == 1


# ---------------------------------------------------------------- who that is


class Cloud(MemoryProvider):
    """One that knows who asks."""

    def __init__(self, arn: str) -> None:
        super().__init__()
        self.arn = arn

    def principal(self) -> str:
        return self.arn


def test_the_owner_is_the_account_of_the_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = []
    for state in ("here", "there"):
        monkeypatch.setenv("ORCH_STATE_HOME", str(tmp_path / state))
        names += [identity.owner(Cloud(f"arn:aws:iam::1:user/{who}")) for who in ("Ann", "Bob")]
    assert names[:2] == names[2:]
    assert len(set(names)) == 2
    assert names[0].startswith("user-ann-")
    assert all(
        set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_") and len(name) < 64 for name in names
    )


def test_without_a_login_it_is_one_random_id_a_state_folder(
    tmp_path: Path, cloud: MemoryProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = identity.owner(cloud)
    assert identity.owner(cloud) == mine
    other_user(tmp_path, monkeypatch)
    assert identity.owner(cloud) != mine


def test_what_was_made_before_a_login_stays_mine(tmp_path: Path, cloud: MemoryProvider) -> None:
    made = lease(tmp_path / "a", "a", cloud)
    assert identity.is_mine(Cloud("arn:aws:iam::1:user/ann"), made)


def test_an_id_that_a_full_disk_cut_is_made_anew(tmp_path: Path, cloud: MemoryProvider) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "owner").write_text("12ab")
    assert len(identity.owner(cloud)) == 32


def test_a_state_folder_that_cannot_be_written_is_said(tmp_path: Path, cloud: MemoryProvider) -> None:
    (tmp_path / "state").write_text("a file in its place")
    with pytest.raises(LocalError, match="cannot be written"):
        identity.owner(cloud)


def _put(queue: multiprocessing.Queue[str]) -> None:
    queue.put(identity.owner(MemoryProvider()))


def test_two_that_make_it_at_once_agree(cloud: MemoryProvider) -> None:
    fork = multiprocessing.get_context("fork")
    queue: multiprocessing.Queue[str] = fork.Queue()
    makers = [fork.Process(target=_put, args=(queue,)) for _ in range(4)]
    for maker in makers:
        maker.start()
    found = {queue.get(timeout=30) for _ in makers}
    for maker in makers:
        maker.join()
    assert found == {identity.owner(cloud)}


def test_the_command_that_is_named_asks_for_the_same_machines(
    tmp_path: Path, cloud: MemoryProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where no ledger is at hand: a cloud that nobody names is not asked, and that is said."""
    lease(tmp_path / "a", "a", cloud)
    shutil.rmtree(tmp_path / "a")
    (tmp_path / "b").mkdir()
    monkeypatch.chdir(tmp_path / "b")
    words = ["orch", "down", "--all", "--cloud", "memory"]
    for code in (15, 2):  # it would lose something; nobody can be asked
        refused = CliRunner().invoke(app, [*words[1:], "--json"])
        assert refused.exit_code == code
        words = shlex.split(json.loads(refused.stdout)["error"]["next_command"].rpartition("lose them: ")[2])
    assert words == ["orch", "down", "--all", "--discard", "--cloud", "memory", "--yes"]
    assert CliRunner().invoke(app, words[1:]).exit_code == 0
    assert not cloud.alive()
    assert (
        "To check another cloud: orch down --all --cloud"
        in CliRunner().invoke(app, ["down", "--all", "--yes"]).stderr
    )
