"""How a machine of this computer ends, whoever was killed, and whenever."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from orchestrator.model import MachineState
from orchestrator.providers.local import network
from orchestrator.providers.local.store import Folder
from tests.e2e.machine_bench import (
    Bench,
    links,
    start_creator,
    until,
)

pytestmark = pytest.mark.machine


# ---------------------------------------------------------------- how it ends


@pytest.mark.parametrize(
    "command",
    [
        "poweroff",
        "/sbin/shutdown -h now",
        "shutdown -P +0",
        "halt -p",
        "reboot",
        "setsid nohup poweroff >/dev/null 2>&1 &",
    ],
)
def test_power_off_from_inside_is_the_end_of_it(bench: Bench, command: str) -> None:
    machine = bench.up("off")
    guest = bench.guest(machine)
    bench.says(machine, "nohup setsid sleep 4242 >/dev/null 2>&1 </dev/null & echo started")
    bench.ssh(machine, command)
    until(lambda: bench.listed() == [])
    assert not Path(f"/proc/{guest}").exists()
    bench.await_nothing()


def test_the_reboot_system_call_is_for_this_computer_alone(bench: Bench) -> None:
    if not shutil.which("perl"):
        pytest.skip("no perl here to make the system call with")
    machine = bench.up("syscall")
    call = "perl -e 'exit(syscall(169, 0xfee1dead, 672274793, 0x4321fedc, 0) == 0 ? 0 : 9)'"  # x86-64
    assert bench.ssh(machine, call).returncode == 9
    assert bench.listed()[0].state is MachineState.RUNNING


def test_shutdown_can_be_delayed_and_taken_back(bench: Bench) -> None:
    machine = bench.up("later")
    bench.says(machine, "shutdown +1; test -f /run/shutdown.pid; shutdown -c; ! test -e /run/shutdown.pid")
    refused = bench.ssh(machine, "shutdown 23:00")
    assert refused.returncode == 1
    assert bench.listed()[0].state is MachineState.RUNNING


def test_a_job_hears_of_the_end_before_it_comes(bench: Bench) -> None:
    machine = bench.up("notice")
    job = "trap 'echo bye >/root/heard; while ! [ -e /root/leave ]; do sleep 0.1; done; exit' TERM"
    bench.says(
        machine, f'setsid sh -c "{job}; while :; do sleep 0.1; done" >/dev/null 2>&1 </dev/null & sleep 0.3'
    )
    inside = Path(f"/proc/{bench.guest(machine)}/root/root")
    bench.provider.preempt(machine, notice_s=30)
    until(lambda: (inside / "heard").exists())
    assert bench.listed()[0].state is MachineState.RUNNING
    (inside / "leave").touch()
    until(lambda: bench.listed() == [], 20)


def test_preemption_pulls_the_plug_on_whoever_does_not_listen(bench: Bench) -> None:
    machine = bench.up("deaf")
    job = "trap 'touch /root/heard' TERM; while :; do sleep 0.1; done"
    bench.says(machine, f'setsid sh -c "{job}" >/dev/null 2>&1 </dev/null & sleep 0.3')
    heard = Path(f"/proc/{bench.guest(machine)}/root/root/heard")
    bench.provider.preempt(machine, notice_s=3)
    until(heard.exists)
    until(lambda: bench.listed() == [], 20)


def test_a_kill_ends_everything_at_once(bench: Bench) -> None:
    machine = bench.up("killed")
    bench.says(machine, "nohup setsid sleep 4243 >/dev/null 2>&1 </dev/null & echo started")
    bench.provider.kill(machine)
    until(lambda: bench.listed() == [])
    assert bench.provider.endpoint(machine) is None


def test_the_removal_of_a_machine_leaves_a_link_that_another_has_by_now(bench: Bench) -> None:
    """A link's name is free once its machine has ended, and before what it was is removed."""
    machine = bench.up("later-one")
    interface = json.loads((bench.folder_of(machine) / "guest.json").read_text())["interface"]
    network.unplug(interface, "m-ended.01234567")
    assert bench.says(machine, "hostname") == machine.name
    network.unplug(interface, Folder(bench.folder_of(machine)).mark)
    assert interface not in links()


def test_the_deadline_holds_with_its_creator_dead(bench: Bench) -> None:
    spec = bench.spec("orphan", seconds=6)
    creator = start_creator(bench, spec, "time.sleep(1000)")
    until(lambda: [found.state for found in bench.listed()] == [MachineState.RUNNING])
    creator.kill()
    creator.wait()
    machine = bench.listed()[0]
    guest = bench.guest(machine)
    assert bench.says(machine, "hostname") == machine.name
    until(lambda: not Path(f"/proc/{guest}").exists(), 30)
    assert datetime.now(UTC) >= spec.deadline - timedelta(seconds=1)
    bench.await_nothing()  # nobody has asked for it


def test_the_deadline_holds_with_its_supervisor_dead_too(bench: Bench) -> None:
    machine = bench.up("alone", seconds=5)
    guest = bench.guest(machine)
    os.kill(bench.supervisor(machine), signal.SIGKILL)
    assert bench.says(machine, "hostname") == machine.name
    assert [found.state for found in bench.listed()] == [MachineState.RUNNING]
    until(lambda: not Path(f"/proc/{guest}").exists(), 30)
    assert bench.listed() == []
    bench.await_nothing()


@pytest.mark.slow
def test_the_deadline_ends_a_frozen_machine(bench: Bench) -> None:
    machine = bench.up("icy", seconds=2)
    bench.provider.freeze(machine)
    until(lambda: bench.listed() == [], 60)


def test_delete_removes_what_a_killed_supervisor_left(bench: Bench) -> None:
    machine = bench.up("abandoned")
    os.kill(bench.supervisor(machine), signal.SIGKILL)
    bench.provider.delete(machine)
    assert bench.listed() == []
    bench.await_nothing()


def test_list_removes_what_a_dead_machine_and_a_killed_supervisor_left(bench: Bench) -> None:
    machine = bench.up("ruin")
    interface = json.loads((bench.folder_of(machine) / "guest.json").read_text())["interface"]
    assert interface in links()
    os.kill(bench.supervisor(machine), signal.SIGKILL)
    os.kill(bench.guest(machine), signal.SIGKILL)
    until(lambda: bench.listed() == [])
    bench.await_nothing()
    assert interface not in links()


def test_delete_ends_a_machine_whose_supervisor_hangs(bench: Bench) -> None:
    machine = bench.up("stuck")
    os.kill(bench.supervisor(machine), signal.SIGSTOP)
    bench.provider.delete(machine)
    assert bench.listed() == []
    bench.await_nothing()


def test_delete_ends_a_frozen_machine(bench: Bench) -> None:
    machine = bench.up("frozen-end")
    bench.provider.freeze(machine)
    bench.provider.delete(machine)
    assert bench.listed() == []


# ---------------------------------------------------------------- killed while creating


@pytest.mark.parametrize("delay_ms", [0, 20, 40, 60, 80, 100, 130, 160, 200, 250, 300])
def test_a_creator_killed_at_any_time_leaves_one_machine_or_none(bench: Bench, delay_ms: int) -> None:
    spec = bench.spec("halfway")
    creator = start_creator(bench, spec, "time.sleep(1000)")
    assert creator.stdout is not None
    assert creator.stdout.readline() == b"creating\n"
    time.sleep(delay_ms / 1000)
    creator.kill()
    creator.wait()
    machine = bench.provider.create(spec)
    until(lambda: [found.state for found in bench.listed()] == [MachineState.RUNNING])
    assert bench.says(machine, "hostname") == machine.name
    bench.provider.delete(machine)
    assert bench.listed() == []
    bench.await_nothing()


@pytest.mark.parametrize("delay_ms", [0, 30, 60, 90, 120, 160, 200])
def test_a_supervisor_killed_at_any_time_is_cleaned_up_after(bench: Bench, delay_ms: int) -> None:
    spec = bench.spec("orphaned")
    creator = start_creator(bench, spec, "time.sleep(1000)")
    until(lambda: any(bench.folder.glob("state/machines/*/supervisor.json")))
    time.sleep(delay_ms / 1000)
    folder = next(bench.folder.glob("state/machines/m-*"))
    os.kill(int(json.loads((folder / "supervisor.json").read_text())["pid"]), signal.SIGKILL)
    creator.kill()
    creator.wait()
    until(lambda: all(found.state is MachineState.RUNNING for found in bench.listed()))
    for machine in bench.listed():
        bench.provider.delete(machine)
    assert bench.listed() == []
    bench.await_nothing()


def test_several_creators_of_one_machine_make_one(bench: Bench) -> None:
    spec = bench.spec("raced")
    creators = [start_creator(bench, spec, "print(machine.id, flush=True)") for _ in range(4)]
    said = [creator.communicate(timeout=60)[0].split() for creator in creators]
    assert {words[-1] for words in said} == {bench.listed()[0].id.encode()}
    assert len(bench.listed()) == 1
