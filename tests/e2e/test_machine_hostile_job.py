"""A job that attacks the computer under its machine, and what keeps the machine's deadline."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.e2e.machine_bench import Bench, until

pytestmark = pytest.mark.machine

FORBIDDEN = {
    "the clock": 'date -s "@$(date +%s)"',
    "the clock, in a namespace": "unshare -Ur sh -c 'date -s \"@$(date +%s)\"'",
    "a device": "mknod /tmp/device b 7 0",
    "a device, in a namespace": "unshare -Ur mknod /tmp/device b 7 0",
    "a setting of the kernel": ": >>/proc/sys/kernel/core_pattern",
    "a setting, by a mount": "mount -o remount,bind,rw /proc/sys && : >>/proc/sys/kernel/core_pattern",
    "a setting, in a namespace": (
        "unshare -Urmpf sh -c 'mount -t proc none /mnt && : >>/mnt/sys/kernel/core_pattern'"
    ),
    "a mount": "mount -t tmpfs none /mnt",
    "control groups": "mount -t cgroup2 none /mnt || mount -t cgroup -o memory none /mnt",
    "init's namespaces": "nsenter -t 1 -m -- true",
    "its own capabilities": "setpriv --bounding-set +sys_admin mount -t tmpfs none /mnt",
}
"""Succeeding in one of them is a way to this computer. Each is done in a way that would harm nothing."""

SABOTAGE = r"""
for name in sleep kill grep cat sh poweroff; do
    file=$(command -v $name); printf '#!/bin/true\n' >/tmp/new; chmod +x /tmp/new
    [ "$name" = sh ] || cp /tmp/new "$file"
done
echo 'while :; do :; done' >/usr/lib/orch-machine/init.sh
kill -STOP 1; kill -KILL 1; kill -USR1 -1; kill -STOP -1
"""


@pytest.mark.parametrize("what", FORBIDDEN)
def test_a_job_that_is_root_has_no_power_over_this_computer(bench: Bench, what: str) -> None:
    machine = bench.up("root")
    assert bench.says(machine, "id -u") == "0"
    assert bench.ssh(machine, FORBIDDEN[what]).returncode != 0


def test_the_deadline_holds_against_a_job_that_replaces_what_keeps_it(bench: Bench) -> None:
    spec = bench.spec("sabotaged", seconds=6)
    machine = bench.provider.create(spec)
    guest = bench.guest(machine)
    bench.ssh(
        machine, f"nohup setsid sh -c '{SABOTAGE.replace(chr(39), chr(34))}' >/dev/null 2>&1 </dev/null &"
    )
    until(lambda: not Path(f"/proc/{guest}").exists(), 60)
    assert datetime.now(UTC) >= spec.deadline - timedelta(seconds=1)
    bench.await_nothing()


def test_the_deadline_holds_on_a_disk_that_is_full(bench: Bench) -> None:
    machine = bench.up("full", seconds=8)
    guest = bench.guest(machine)
    bench.ssh(machine, "head -c 10G /dev/zero >/root/fill; head -c 10G /dev/zero >/run/fill; true")
    until(lambda: not Path(f"/proc/{guest}").exists(), 60)
    bench.await_nothing()
