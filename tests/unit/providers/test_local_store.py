"""Machines written down: whole, private, and owned by one process at a time."""

from __future__ import annotations

import multiprocessing
import os
import signal
import stat
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import Machine, MachineSpec, MachineState, Offer
from orchestrator.providers.local import provider, supervise
from orchestrator.providers.local.removal import destroy, sweep
from orchestrator.providers.local.store import (
    Folder,
    Record,
    boottime,
    claim,
    folders,
    machine_id,
    machine_name,
    read_json,
    state_home,
    write_json,
)

OFFER = Offer("local", "local", "local", "local", 1, 1 << 30, "x86_64", 0.0)
SPEC = MachineSpec("lease", 1, OFFER, 1 << 30, datetime.now(UTC), {}, "ssh-ed25519 AAAA")
RECORD = Record(
    id="m-1",
    name="x-1",
    tier="netns",
    cpus=1,
    memory=1,
    disk=1,
    gpus=0,
    instance_type="local",
    zone="local",
    labels={"a": "b"},
    user="root",
    base="/opt/orch",
    created_at="2030-01-01T00:00:00+00:00",
    deadline="2030-01-01T01:00:00+00:00",
    ssh_public_key="k",
    user_data="#!/bin/sh\n\udcff\0é",
)


@pytest.fixture
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    for each in ("CREATE_PATIENCE_S", "DELETE_PATIENCE_S"):
        monkeypatch.setattr(provider, each, 0.0)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "machines/m-1")


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"ORCH_STATE_HOME": "/a", "XDG_STATE_HOME": "/b", "HOME": "/h"}, "/a"),
        ({"XDG_STATE_HOME": "/b", "HOME": "/h"}, "/b/orch"),
        ({"ORCH_STATE_HOME": "", "HOME": "/h"}, "/h/.local/state/orch"),
    ],
)
def test_where_state_is_kept(environ: dict[str, str], expected: str) -> None:
    assert state_home(environ) == Path(expected)


@given(st.text(), st.integers(0, 10**6))
def test_every_spec_has_a_host_name_and_a_stable_id(name: str, attempt: int) -> None:
    spec = replace(SPEC, id=name, attempt=attempt)
    assert machine_id(spec) == machine_id(replace(spec, disk=5))
    assert machine_id(spec) != machine_id(replace(spec, attempt=attempt + 1))
    host = machine_name(spec)
    assert 0 < len(host) <= 63
    assert all(part.isalnum() and part.isascii() for part in host.split("-"))


def test_a_record_comes_back_as_it_was_written(folder: Folder) -> None:
    owner = claim(folder, make=True)
    assert owner is not None
    folder.write_record(RECORD)
    assert folder.record() == RECORD
    assert folder.guest() is None
    assert replace(RECORD, due=boottime() + 60).left == pytest.approx(60, abs=5)
    for path in (folder.path.parent, folder.path, folder.path / "machine.json"):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077
    owner.release()


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_json(path, {"old": 1})
    with pytest.raises(TypeError):
        write_json(path, {"new": object()})
    assert read_json(path) == {"old": 1}
    assert read_json(tmp_path / "absent.json") == {}


def test_one_owner_at_a_time(folder: Folder) -> None:
    first = claim(folder, make=True)
    assert first is not None
    assert claim(folder) is None
    first.release()
    second = claim(folder)
    assert second is not None
    second.release()


@pytest.mark.usefixtures("no_patience")
def test_a_machine_that_another_command_holds_is_busy(tmp_path: Path) -> None:
    machine = Machine(
        "local", "lease-1", "x", MachineState.RUNNING, {}, "local", "local", 0.0, datetime.now(UTC)
    )
    local = provider.open_local(tmp_path)
    held = claim(Folder(tmp_path / "machines" / machine.id), make=True)
    assert held is not None
    with pytest.raises(ProviderError) as refused:
        local.delete(machine)
    held.release()
    assert (refused.value.fault, refused.value.exit_code) == (Fault.BUSY, 15)
    assert (refused.value.next_command or "").startswith("orch status")


def test_the_absent_is_owned_by_nobody(folder: Folder) -> None:
    assert claim(folder) is None
    assert not folder.path.exists()


def hold(path: Path, ready: multiprocessing.synchronize.Event) -> None:
    owner = claim(Folder(path), make=True)
    assert owner is not None
    ready.set()
    signal.pause()


def test_a_dead_owner_owns_nothing(folder: Folder) -> None:
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    holder = context.Process(target=hold, args=(folder.path, ready))
    holder.start()
    assert ready.wait(30)
    assert claim(folder) is None
    assert holder.pid is not None
    os.kill(holder.pid, signal.SIGKILL)
    holder.join()
    owner = claim(folder)
    assert owner is not None
    owner.release()


def test_who_waited_for_a_folder_that_was_removed_gets_the_new_one(folder: Folder) -> None:
    first = claim(folder, make=True)
    assert first is not None
    folder.path.rename(folder.path.with_name(".gone-m-1-x"))
    second = claim(folder, make=True)
    assert second is not None
    assert (folder.path / "lock").exists()
    first.release()
    assert claim(folder) is None
    second.release()


def test_removal_of_a_machine_that_never_started_leaves_nothing(folder: Folder) -> None:
    owner = claim(folder, make=True)
    assert owner is not None
    folder.write_record(RECORD)
    assert destroy(folder)
    assert destroy(folder)
    owner.release()
    assert list(folder.path.parent.iterdir()) == []


def test_interrupted_removals_are_finished_and_not_listed(folder: Folder) -> None:
    folder.path.with_name(".gone-m-1-abc").mkdir(parents=True)
    folder.path.with_name(".gone-m-1-abc").joinpath("disk.img").touch()
    assert list(folders(folder.path.parent)) == []
    sweep(folder.path.parent)
    assert list(folder.path.parent.iterdir()) == []
    assert list(folders(folder.path.parent / "absent")) == []


def test_two_state_folders_mark_the_same_machine_differently(tmp_path: Path) -> None:
    assert Folder(tmp_path / "a/m-1").mark != Folder(tmp_path / "b/m-1").mark


def test_a_host_key_from_an_open_folder_is_refused(folder: Folder) -> None:
    folder.path.mkdir(parents=True, mode=0o700)
    (folder.path / "host_key.pub").write_text("ssh-ed25519 AAAA comment here\n")
    assert folder.host_key() == "ssh-ed25519 AAAA"
    folder.path.chmod(0o750)
    with pytest.raises(ProviderError) as refused:
        folder.host_key()
    assert refused.value.fault is Fault.AUTH


def test_a_supervisor_does_not_leave_what_resists_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([False, False, True])
    monkeypatch.setattr(supervise, "destroy", lambda _: next(answers))
    monkeypatch.setattr(supervise.time, "sleep", lambda _: None)
    supervise.remove(Folder(tmp_path))
    assert list(answers) == []
