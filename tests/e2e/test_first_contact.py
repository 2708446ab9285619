"""scripts/first-contact against the emulated clouds: every belief is checked, and nothing is left."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clouds.fresh import fresh
from tests.e2e.project import until

pytestmark = [
    pytest.mark.machine,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="each instance needs a network of its own, so root"),
]

ROOT = Path(__file__).resolve().parents[2]
HERE = "10.0.0.0/8"


@pytest.fixture(params=["aws", "gcp"])
def account(request: pytest.FixtureRequest) -> Iterator[tuple[str, Any]]:
    if shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None:
        pytest.skip("no sshd on this computer")
    with fresh(request.param) as cloud:
        yield request.param, cloud


def start(name: str, cloud: Any, folder: Path) -> subprocess.Popen[str]:
    environ = {**os.environ, **cloud.env, "ORCH_STATE_HOME": str(folder / "state"), "TMPDIR": str(folder)}
    argv = (sys.executable, "-m", "scripts.first_contact", name, "--from", HERE)
    return subprocess.Popen(
        argv, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def alive(name: str, cloud: Any) -> list[str]:
    if name == "gcp":
        return [instance["name"] for instance in cloud.state()["instances"]]
    found = cloud.client("ec2").describe_instances()["Reservations"]
    states = [(one["Instances"][0]["InstanceId"], one["Instances"][0]["State"]["Name"]) for one in found]
    return [identity for identity, state in states if state not in ("shutting-down", "terminated")]


def test_the_whole_loop_finds_no_belief_wrong(account: tuple[str, Any], tmp_path: Path) -> None:
    name, cloud = account
    out, err = start(name, cloud, tmp_path).communicate(timeout=600)
    assert "Wrong beliefs: none" in out, f"{out}\n{err}"
    asked = [line for line in out.splitlines() if line.startswith("ok ")]
    assert len(asked) >= (11 if name == "aws" else 9), out
    assert "It cost $0.0" in out
    assert alive(name, cloud) == []


def test_ended_in_the_middle_it_leaves_nothing(account: tuple[str, Any], tmp_path: Path) -> None:
    name, cloud = account
    process = start(name, cloud, tmp_path)
    until(lambda: bool(alive(name, cloud)) or process.poll() is not None, 300)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 130, f"{out}\n{err}"
    assert alive(name, cloud) == []


def set_up(name: str, cloud: Any) -> list[str]:
    """What `orch setup` makes and `--undo` removes, as far as it is there."""
    if name == "gcp":
        return [rule["name"] for rule in cloud.state()["settings"]["firewalls"] if "orch" in rule["name"]]
    groups = cloud.client("ec2").describe_security_groups()["SecurityGroups"]
    return [group["GroupName"] for group in groups if "orch" in group["GroupName"]]


def test_interrupted_in_its_setup_it_removes_that(account: tuple[str, Any], tmp_path: Path) -> None:
    name, cloud = account
    process = start(name, cloud, tmp_path)
    until(lambda: bool(set_up(name, cloud)) or process.poll() is not None, 300)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 130, f"{out}\n{err}"
    assert set_up(name, cloud) == []


def test_killed_outright_the_next_call_removes_what_it_left(account: tuple[str, Any], tmp_path: Path) -> None:
    name, cloud = account
    process = start(name, cloud, tmp_path)
    until(lambda: bool(alive(name, cloud)) or process.poll() is not None, 300)
    process.kill()
    process.communicate(timeout=60)
    assert set_up(name, cloud)
    refuse_machines(name, cloud)
    out, err = start(name, cloud, tmp_path).communicate(timeout=600)
    assert "An earlier first contact was killed" in out, f"{out}\n{err}"
    assert (alive(name, cloud), set_up(name, cloud)) == ([], [])


def refuse_machines(name: str, cloud: Any) -> None:
    if name == "aws":
        cloud.set(quotas={"L-1216C47A": 0})
    else:
        cloud.settings(quotas={"CPUS": 0})


def test_a_refused_machine_leaves_the_exit_code_and_the_way_out(
    account: tuple[str, Any], tmp_path: Path
) -> None:
    name, cloud = account
    refuse_machines(name, cloud)
    process = start(name, cloud, tmp_path)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 4, f"{out}\n{err}"
    assert "orch up: The quota" in out
    assert "Next: " in out
    assert set_up(name, cloud) == []


def test_a_setup_that_may_not_be_undone_is_not_called_clean(account: tuple[str, Any], tmp_path: Path) -> None:
    name, cloud = account
    refuse_machines(name, cloud)
    if name == "aws":
        kept = {"Statement": [{"Effect": "Allow", "NotAction": ["ec2:DeleteSecurityGroup"]}]}
        cloud.set(policy=kept)
    else:
        cloud.settings(denied=["compute.firewalls.delete"])
    process = start(name, cloud, tmp_path)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 8, f"{out}\n{err}"
    assert f"orch setup {name} --undo" in out
