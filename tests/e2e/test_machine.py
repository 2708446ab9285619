"""The machine that `local` makes is a real one: what is promised of it, tried over real ssh."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import Bound, MachineState, Need
from orchestrator.providers.local.cgroup import Cgroup, Hierarchies, Limits
from tests.e2e.machine_bench import (
    MIB,
    Bench,
    creator_program,
    until,
)

pytestmark = pytest.mark.machine


# ---------------------------------------------------------------- what it is


def test_it_is_a_computer_of_its_own(bench: Bench) -> None:
    machine = bench.up("own")
    assert bench.says(machine, "hostname") == machine.name
    assert bench.says(machine, "id -un") == "root"
    assert bench.endpoint(machine).address.startswith("10.77.")
    assert bench.endpoint(machine).address in bench.says(machine, "ip -4 -o addr show eth0")
    assert int(bench.says(machine, "ls -d /proc/[0-9]* | wc -l")) < 20
    assert "sshd" in bench.says(machine, "cat /proc/[0-9]*/cmdline | tr '\\0' '\\n'")
    assert bench.says(machine, "nproc") == "1"
    assert bench.says(machine, "cat /proc/self/oom_score_adj") == "0"


def test_its_files_are_its_own(bench: Bench) -> None:
    before = Path("/etc/debian_version").read_bytes() if Path("/etc/debian_version").exists() else None
    machine = bench.up("files")
    bench.says(machine, "rm -f /etc/debian_version; echo hacked >/usr/bin/orch-e2e; echo x >/etc/orch-e2e")
    bench.says(
        machine,
        "mkdir -p /opt/orch && echo y >/opt/orch/file && cp -r /usr/lib/ssl /root/ && rm -rf /usr/share",
    )
    after = Path("/etc/debian_version").read_bytes() if before is not None else None
    assert after == before
    assert Path("/usr/share").exists()
    for path in ("/usr/bin/orch-e2e", "/etc/orch-e2e", "/opt/orch/file"):
        assert not Path(path).exists()


def test_what_is_this_users_is_not_seen_in_it(bench: Bench) -> None:
    machine = bench.up("hidden")
    visible = set(bench.says(machine, "ls -A /").split())
    system = (
        "bin sbin lib lib32 lib64 libx32 usr etc opt var nix dev proc sys run tmp root home srv mnt media"
    )
    assert visible <= set(system.split())
    assert bench.says(machine, "ls -A /home /tmp /mnt | grep -v :; true").strip() == ""
    assert bench.says(machine, "ls -A /root") == ".ssh"
    assert bench.ssh(machine, f"test -e {bench.folder}").returncode == 1
    keys = bench.says(machine, "find /etc/ssh -name 'ssh_host_*_key' -size +0")
    assert keys == "/etc/ssh/ssh_host_ed25519_key"
    assert "$" not in bench.says(machine, "cut -d: -f2 /etc/shadow")


def test_a_folder_of_ours_on_this_computer_is_hidden_too(bench: Bench) -> None:
    """/opt/orch may be in use here: a machine must start without it."""
    marker = Path("/opt/orch")
    if marker.exists():
        pytest.skip("/opt/orch is in use on this computer")
    marker.mkdir()
    try:
        (marker / "secret").write_text("here")
        machine = bench.up("masked")
        assert bench.says(machine, "ls -A /opt/orch") == ""
        bench.says(machine, "echo there >/opt/orch/secret")
        assert (marker / "secret").read_text() == "here"
    finally:
        shutil.rmtree(marker)


def test_only_the_key_that_was_given_opens_it(bench: Bench) -> None:
    machine = bench.up("keys")
    stranger = bench.folder / "stranger"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", stranger], check=True)
    command = [
        str(stranger) if word == str(bench.identity) else word for word in bench.ssh_command(machine, "true")
    ]
    refused = subprocess.run(command, capture_output=True, text=True)
    assert refused.returncode == 255
    assert "Permission denied" in refused.stderr


def test_machines_have_different_host_keys_and_addresses(bench: Bench) -> None:
    first, second = bench.up("one"), bench.up("two")
    assert bench.endpoint(first).address != bench.endpoint(second).address
    assert set(bench.endpoint(first).host_keys).isdisjoint(bench.endpoint(second).host_keys)
    bench.provider.delete(first)
    assert bench.says(second, "hostname") == second.name


def test_a_terminal_works_on_it(bench: Bench) -> None:
    machine = bench.up("tty")
    command = bench.ssh_command(machine, "tty")
    done = subprocess.run(
        [command[0], "-tt", *command[1:]], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert "/dev/pts/" in done.stdout


def test_jobs_can_be_interrupted(bench: Bench) -> None:
    """No signal is ignored in a session because somebody started a shell in the background."""
    machine = bench.up("signals")
    assert bench.says(machine, "grep SigIgn /proc/self/status").split()[1].strip("0") == ""


# ---------------------------------------------------------------- limits


def test_memory_is_limited_and_the_kill_can_be_seen_inside(bench: Bench) -> None:
    machine = bench.up("memory", memory=128 * MIB)
    hungry = "head -c 400m /dev/zero | tail -c 400m >/dev/null"
    done = bench.ssh(machine, f"sh -c '{hungry}; exit $?'")
    assert done.returncode == 137, done
    seen = bench.says(
        machine,
        "cd /sys/fs/cgroup; cat memory.events memory/memory.oom_control 2>/dev/null | grep '^oom_kill '",
    )
    assert int(seen.split()[1]) >= 1
    assert bench.says(machine, "hostname") == machine.name


def test_it_cannot_raise_its_own_limits(bench: Bench) -> None:
    machine = bench.up("limits")
    limit = "$(ls /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null)"
    assert "Read-only" in bench.ssh(machine, f"echo 99999999999 >{limit}").stderr


LIFTS = """
for kind in "cgroup -o memory" cgroup2; do
    mount -t $kind none /mnt || continue
    for name in memory.memsw.limit_in_bytes memory.limit_in_bytes memory.max; do
        [ ! -e /mnt/$name ] || echo 4294967296 >/mnt/$name
    done
done
"""


def test_root_in_it_cannot_lift_the_memory_limit_by_a_mount_of_its_own(bench: Bench) -> None:
    """In a user namespace root may mount the groups; the limit that holds lies above what it finds."""
    machine = bench.up("lifts", memory=128 * MIB)
    tried = bench.ssh(machine, f"unshare --user --map-root-user --mount --cgroup sh -c '{LIFTS}'")
    hungry = "head -c 400m /dev/zero | tail -c 400m >/dev/null"
    done = bench.ssh(machine, f"sh -c '{hungry}; exit $?'")
    assert done.returncode == 137, (tried, done)


def test_cpu_is_limited_however_many_threads_it_starts(bench: Bench) -> None:
    machine = bench.up("cpu")
    burn = "timeout 2 sh -c 'while :; do :; done' & timeout 2 sh -c 'while :; do :; done' & wait; times"
    spent = bench.says(machine, burn).splitlines()[-1].split()[0]
    minutes, seconds = spent.rstrip("s").split("m")
    assert (
        float(minutes) * 60 + float(seconds) < 3.0
    )  # two of them for two seconds: four, were there no limit


def test_a_full_disk_is_full_and_can_be_freed(bench: Bench) -> None:
    machine = bench.up("disk")
    assert int(bench.says(machine, "df --output=size -B1 / | tail -1")) <= 512 * MIB
    bench.provider.fill_disk(machine)
    write = "mkdir -p /opt/orch && head -c 1m /dev/zero >/opt/orch/more"
    failed = bench.ssh(machine, write)
    assert failed.returncode != 0
    assert "No space left" in failed.stderr
    bench.provider.free_disk(machine)
    assert bench.ssh(machine, write).returncode == 0


# ---------------------------------------------------------------- first boot


def test_user_data_is_done_once_as_root_before_the_first_login(bench: Bench) -> None:
    script = '#!/bin/sh\nsleep 0.5; id -un; echo ran >>/root/count; echo "it\'s $HOME ä"\nexit 3\n'
    machine = bench.up("userdata", user_data=script)
    assert bench.says(machine, "cat /root/count") == "ran"
    log = bench.says(machine, "cat /var/log/user-data.log").splitlines()
    assert log == ["root", "it's /root ä"]


@pytest.mark.slow
def test_user_data_that_never_ends_does_not_lock_anybody_out(bench: Bench) -> None:
    machine = bench.up("endless", user_data="#!/bin/sh\nsleep 1000\n")
    assert bench.says(machine, "hostname") == machine.name


def test_user_data_of_a_missing_interpreter_is_told_in_its_log(bench: Bench) -> None:
    machine = bench.up("missing", user_data="#!/no/such/interpreter\n")
    assert "not found" in bench.says(machine, "cat /var/log/user-data.log")


def test_user_data_without_an_interpreter_is_refused(bench: Bench) -> None:
    with pytest.raises(ProviderError, match="user_data") as refused:
        bench.provider.create(replace(bench.spec("bad"), user_data="echo hello"))
    assert refused.value.fault is Fault.INVALID
    assert bench.listed() == []


# ---------------------------------------------------------------- what befalls it


def test_a_frozen_machine_answers_nobody_and_goes_on_when_thawed(bench: Bench) -> None:
    machine = bench.up("frozen")
    bench.says(machine, "hostname")
    bench.provider.freeze(machine)
    with pytest.raises(subprocess.TimeoutExpired):
        bench.ssh(machine, "hostname", timeout=1.5)
    assert bench.listed()[0].state is MachineState.RUNNING
    bench.provider.thaw(machine)
    assert bench.says(machine, "hostname") == machine.name


def test_a_partition_cuts_a_live_session_and_heals(bench: Bench) -> None:
    machine = bench.up("cut")
    ticks = bench.folder / "ticks"
    session = subprocess.Popen(
        bench.ssh_command(machine, "while :; do date +%s%N; sleep 0.05; done"),
        stdout=ticks.open("w"),
        stderr=subprocess.DEVNULL,
    )
    try:
        until(lambda: ticks.stat().st_size > 0)
        bench.provider.partition(machine)
        time.sleep(0.3)
        cut = ticks.stat().st_size
        assert bench.ssh(machine, "true").returncode == 255
        assert ticks.stat().st_size == cut
        bench.provider.heal(machine)
        until(lambda: ticks.stat().st_size > cut)
        assert bench.says(machine, "hostname") == machine.name
    finally:
        session.kill()
        session.wait()


def test_what_is_too_large_for_this_computer_says_what_there_is(bench: Bench) -> None:
    with pytest.raises(ProviderError, match=r"Here: .* CPUs, .* of memory") as refused:
        bench.provider.offers(Need("local", cpus=Bound(4096), memory=Bound(1 << 50)))
    assert refused.value.fault is Fault.CAPACITY
    with pytest.raises(ProviderError, match="accelerator 1 × H999") as refused:
        from orchestrator.model import AcceleratorNeed

        bench.provider.offers(Need("local", accelerator=AcceleratorNeed(name="H999")))
    assert refused.value.fault is Fault.CAPACITY


def test_a_state_folder_that_others_can_write_proves_no_host_key(bench: Bench) -> None:
    machine = bench.up("open")
    bench.folder_of(machine).chmod(0o777)
    with pytest.raises(ProviderError, match="Other users can access the folder") as refused:
        bench.provider.endpoint(machine)
    assert refused.value.fault is Fault.AUTH
    bench.folder_of(machine).chmod(0o700)


# ---------------------------------------------------------------- lesser computers


@pytest.mark.parametrize("beneath", ["folder", "overlay"])
def test_without_loop_devices_it_lies_in_a_folder_or_in_memory(bench: Bench, beneath: str) -> None:
    """As in most containers. A disk that is this computer's own is never filled."""
    state = bench.folder / "elsewhere"
    hide = "for f in /dev/loop-control /dev/loop[0-9]*; do mount --bind /dev/null $f; done"
    tree = f"mkdir {state}"
    if beneath == "overlay":
        parts = " ".join(f"{bench.folder}/layers/{part}" for part in ("lower", "upper", "work"))
        lower, upper, work = parts.split()
        tree += f"; mkdir {bench.folder}/layers; mount -t tmpfs tmpfs {bench.folder}/layers; mkdir {parts}"
        tree += f"; mount -t overlay overlay -o lowerdir={lower},upperdir={upper},workdir={work} {state}"
    then = """if True:
            import json
            from orchestrator.errors import ProviderError
            try:
                provider.fill_disk(machine)
                filled = True
            except ProviderError:
                filled = False
            with open(f"/proc/{provider._running(machine, required=True)[2].pid}/mounts") as mounts:
                kinds = {line.split()[1]: line.split()[2] for line in mounts}
            provider.delete(machine)
            limits = provider.survey().limits
            print(json.dumps([filled, kinds["/"], limits, len(provider.list({}))]), flush=True)"""
    program = creator_program(bench.spec("loopless"), state, then)
    script = f'set -e; {hide}; {tree}; exec "$0" -c "$1"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, sys.executable, program], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    filled, kind, limits, left = json.loads(done.stdout.splitlines()[-1])
    assert filled is (beneath == "overlay")
    assert (kind == "tmpfs") is (beneath == "overlay")
    assert any("no loop device" in phrase for phrase in limits)
    assert left == 0


def test_version_2_of_control_groups_freezes_and_counts_real_processes(tmp_path: Path) -> None:
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    unified = next((Path(words[1]) for words in mounts if words[2] == "cgroup2"), None)
    if unified is None or not os.access(unified, os.W_OK):
        pytest.skip("no writable cgroup2 here")
    group = Cgroup(f"orch/e2e-{tmp_path.name}", Hierarchies({}, unified))
    group.create(Limits(1, 1 << 30, 100))
    counter = tmp_path / "count"
    script = f'echo 0 >"{group.entrances()[0]}"; while :; do echo >>{counter}; sleep 0.01; done'
    process = subprocess.Popen(["sh", "-c", script])
    try:
        until(lambda: counter.exists() and process.pid in group.pids())
        assert group.freeze(True)
        until(lambda: "frozen 1" in (Path(group.entrances()[0]).parent / "cgroup.events").read_text())
        stopped = counter.stat().st_size
        time.sleep(0.2)
        assert counter.stat().st_size == stopped
        assert group.freeze(False)
        until(lambda: counter.stat().st_size > stopped)
        assert not group.remove(patience_s=0.05)
    finally:
        process.kill()
        process.wait()
        assert group.remove()
