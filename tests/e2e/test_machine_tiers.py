"""The lesser machines, made without root: by a user that exists only for these tests."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.machine

ROOT = Path(__file__).parents[2]
USER = f"orch-e2e-{os.getpid()}"
NUMBER = 20_000 + os.getpid() % 2048 * 16
"""Of nobody else: what still runs under it is killed, and machines give away numbers from 1000 on."""

SCENARIO = '''
import json, os, subprocess, sys, time
from datetime import UTC, datetime, timedelta
from pathlib import Path
sys.path.insert(0, os.environ["ROOT"])
from orchestrator.errors import ProviderError
from orchestrator.model import Bound, MachineSpec, Need
from orchestrator.providers.local.provider import LocalProvider

folder = Path(os.environ["FOLDER"])
provider = LocalProvider(folder / "state")
identity = folder / "id"
subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", identity], check=True)
facts = {"tier": provider.survey().tier, "limits": provider.survey().limits}

def until(holds):
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)

def create(name, seconds):
    need = Need("local", cpus=Bound(1), memory=Bound(256 << 20), disk=256 << 20)
    spec = MachineSpec(name, 1, provider.offers(need)[0], need.disk,
        datetime.now(UTC) + timedelta(seconds=seconds), {"orch-lease": "e2e"},
        identity.with_suffix(".pub").read_text(), '#!/bin/sh\\necho "$HOME" >"$HOME/booted"\\n')
    machine = provider.create(spec)
    until(lambda: provider.endpoint(machine))
    return machine

def ssh(machine, command):
    endpoint = provider.endpoint(machine)
    known = folder / "known"
    known.write_text("".join(f"{machine.id} {key}\\n" for key in endpoint.host_keys))
    options = ["StrictHostKeyChecking=yes", f"UserKnownHostsFile={known}", f"HostKeyAlias={machine.id}",
        "IdentitiesOnly=yes", "BatchMode=yes", f"Port={endpoint.port}"]
    flags = [word for option in options for word in ("-o", option)]
    return subprocess.run(["ssh", "-F", "none", "-i", identity, *flags, f"{endpoint.user}@{endpoint.address}",
        command], capture_output=True, text=True, timeout=60)

def says(machine, command):
    done = ssh(machine, command)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()

def members(machine):
    """Processes that a job left behind, found by their argument."""
    found = subprocess.run(["pgrep", "-xf", "sleep 77[0-9][0-9]"], capture_output=True, text=True)
    return found.stdout.split()

machine = create("first", 300)
facts["base"] = machine.detail["base"]
facts["address"] = provider.endpoint(machine).address
facts["id"] = says(machine, "id -un")
facts["hostname"] = says(machine, "hostname")
facts["home"] = says(machine, "echo $HOME; pwd").split()
facts["booted"] = says(machine, "cat $HOME/booted")
facts["sees_user"] = ssh(machine, f"test -e {folder}").returncode == 0
facts["base_writable"] = ssh(machine, f"mkdir -p {machine.detail['base']}/x").returncode == 0
says(machine, "nohup setsid sleep 7700 >/dev/null 2>&1 </dev/null & echo")
until(lambda: members(machine))
provider.freeze(machine)
facts["frozen"] = Path(f"/proc/{members(machine)[0]}/stat").read_text().rpartition(")")[2].split()[0]
provider.thaw(machine)
facts["thawed"] = says(machine, "echo yes")
try:
    provider.fill_disk(machine)
    facts["fill_disk"] = "done"
except ProviderError as error:
    facts["fill_disk"] = str(error.fault)
ssh(machine, "poweroff")
until(lambda: not provider.list({}))
until(lambda: not members(machine))

machine = create("second", 300)
says(machine, "nohup setsid env -u ORCH_MACHINE sleep 7701 >/dev/null 2>&1 </dev/null & echo")
until(lambda: members(machine))
provider.delete(machine)
until(lambda: not provider.list({}))
until(lambda: not members(machine))

machine = create("third", 3)
supervisor = json.loads((folder / "state/machines" / machine.id / "supervisor.json").read_text())["pid"]
says(machine, "nohup setsid sleep 7702 >/dev/null 2>&1 </dev/null & echo")
os.kill(supervisor, 9)
until(lambda: not members(machine))
until(lambda: not provider.list({}))
facts["left"] = [path.name for path in (folder / "state/machines").iterdir()]
print(json.dumps(facts))
'''

AS_USER = r"""
set -e
if [ -n "$HIDDEN" ]; then # the interpreter lies in a folder that the user may not enter: show just that
    mkdir "$FOLDER/python"
    mount --bind "$PREFIX" "$FOLDER/python"
    mount -t tmpfs -o mode=755 tmpfs "$HIDDEN"
    mkdir -p "$PREFIX"
    mount --bind "$FOLDER/python" "$PREFIX"
fi
exec setpriv --reuid "$SOMEBODY" --regid "$SOMEBODY" --init-groups --reset-env \
    env ROOT="$ROOT" FOLDER="$FOLDER" ORCH_LOCAL_TIER="$ORCH_LOCAL_TIER" \
    "$PREFIX/bin/python3" -I "$FOLDER/scenario.py"
"""


@dataclass(frozen=True)
class Somebody:
    """A user without rights, and a folder of theirs."""

    name: str
    folder: Path

    def play(self, tier: str) -> dict[str, Any]:
        (self.folder / "scenario.py").write_text(SCENARIO)
        prefix = Path(sys.base_prefix)
        closed = [path for path in (*reversed(prefix.parents), prefix) if not path.stat().st_mode & 0o001]
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", AS_USER],
            env={
                "PATH": os.environ["PATH"],
                "ROOT": str(ROOT),
                "FOLDER": str(self.folder),
                "PREFIX": str(prefix),
                "HIDDEN": str(closed[0]) if closed else "",
                "SOMEBODY": self.name,
                "ORCH_LOCAL_TIER": tier,
            },
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.fixture
def somebody() -> Iterator[Somebody]:
    if os.geteuid() != 0 or not all(map(shutil.which, ("useradd", "userdel", "setpriv", "unshare"))):
        pytest.skip("needs root, to make a user without rights")
    if not all(path.stat().st_mode & 0o001 for path in ROOT.parents):
        pytest.skip(f"other users cannot read {ROOT}")
    subprocess.run(["useradd", "--create-home", "--uid", str(NUMBER), USER], check=True, capture_output=True)
    user = pwd.getpwnam(USER)
    folder = Path(tempfile.mkdtemp(prefix="orch-e2e-"))
    os.chown(folder, user.pw_uid, user.pw_gid)
    try:
        yield Somebody(USER, folder)
    finally:
        subprocess.run(["pkill", "-KILL", "-U", str(user.pw_uid)], check=False)
        subprocess.run(["userdel", "--remove", USER], check=False, capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)


def test_without_root_it_still_has_files_processes_and_a_name_of_its_own(somebody: Somebody) -> None:
    if not shutil.which("newuidmap"):
        pytest.skip("needs newuidmap (package uidmap)")
    facts = somebody.play("userns")
    assert facts["tier"] == "userns"
    assert facts["address"] == "127.0.0.1"
    assert facts["id"] == "root"
    assert facts["hostname"] == "first-1"
    assert facts["home"] == ["/root", "/root"]
    assert facts["booted"] == "/root"
    assert facts["base"] == "/opt/orch"
    assert not facts["sees_user"]
    check_what_all_tiers_do(facts)


def test_a_mere_process_has_its_own_home_and_ends_whole(somebody: Somebody) -> None:
    facts = somebody.play("process")
    assert facts["tier"] == "process"
    assert facts["id"] == USER
    assert facts["home"] == [facts["booted"], facts["booted"]]
    assert facts["booted"].startswith(str(somebody.folder))
    assert facts["base"].startswith(str(somebody.folder))
    assert facts["sees_user"]
    check_what_all_tiers_do(facts)


def check_what_all_tiers_do(facts: dict[str, Any]) -> None:
    assert facts["base_writable"]
    assert facts["frozen"] == "T"
    assert facts["thawed"] == "yes"
    assert facts["fill_disk"] == "invalid"
    assert facts["left"] == []
    assert facts["limits"]
