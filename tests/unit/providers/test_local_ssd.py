"""A machine's own SSD: formatted where it is blank, mounted on our folder. Real loop devices and mkfs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from orchestrator.model import Machine, MachineState
from orchestrator.session.local_ssd import SCRIPT, has_one


def machine(provider: str, instance_type: str) -> Machine:
    now = datetime.now(UTC)
    return Machine(provider, "i-1", "m", MachineState.RUNNING, {}, instance_type, "z", 1.0, now)


@pytest.mark.parametrize(
    ("provider", "instance_type", "has"),
    [
        ("aws", "g4dn.xlarge", True),
        ("aws", "m7i.large", False),
        ("gcp", "g2-standard-4", False),
        ("local", "local", False),
        ("memory", "cpu", False),
    ],
)
def test_the_catalog_says_which_machines_have_one(provider: str, instance_type: str, has: bool) -> None:
    assert has_one(machine(provider, instance_type)) is has


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[str]:
    if os.geteuid():
        pytest.skip("needs root")
    image = tmp_path / "ssd.img"
    with image.open("wb") as file:
        file.truncate(64 << 20)
    made = subprocess.run(("losetup", "--find", "--show", str(image)), capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"no loop device: {made.stderr.strip()}")
    yield made.stdout.strip()
    subprocess.run(("losetup", "--detach", made.stdout.strip()), check=True)


def place(tmp_path: Path, *devices: str) -> tuple[Path, Path]:
    """A base folder with a file in it, and the folder in which `devices` are listed by id."""
    base, listed = tmp_path / "base", tmp_path / "by-id"
    base.mkdir()
    (base / "active").write_text("")
    listed.mkdir()
    for number, device in enumerate(devices):
        (listed / f"ssd-{number}").symlink_to(device)
        (listed / f"ssd-{number}_1").symlink_to(device)  # AWS lists each device twice
    return base, listed


def run(tmp_path: Path, base: Path, listed: Path, after: str = "") -> subprocess.CompletedProcess[str]:
    """The script in mount namespaces of its own, then `after`; /etc/fstab is a copy."""
    script = tmp_path / "script.sh"
    script.write_text(SCRIPT)
    (tmp_path / "fstab").touch()
    argv = [base, "root", tmp_path / "dlami/nvme", tmp_path / "mnt", f"{listed}/ssd-*"]
    words = " ".join(f"'{word}'" for word in argv)
    text = f"mount --bind {tmp_path}/fstab /etc/fstab; sh {script} {words} || exit $?; {after}"
    return subprocess.run(("unshare", "--mount", "sh", "-c", text), capture_output=True, text=True)


def test_a_blank_one_is_formatted_and_holds_our_folder(tmp_path: Path, loop: str) -> None:
    base, listed = place(tmp_path, loop)
    script = tmp_path / "script.sh"
    again = f"sh {script} '{base}' root '{tmp_path}/dlami/nvme' '{tmp_path}/mnt' '{listed}/ssd-*'"
    done = run(tmp_path, base, listed, f"findmnt -no SOURCE -T {base}; ls {base}; {again}; echo twice: $?")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == f"{tmp_path}/mnt"
    assert lines[1].startswith(loop)
    assert lines[2:] == ["active", "lost+found", "twice: 0"] or lines[2:] == ["active", "twice: 0"]
    kept = (tmp_path / "fstab").read_text().splitlines()
    assert [line.split()[1] for line in kept] == [f"{tmp_path}/mnt", str(base)]
    assert all("nofail" in line for line in kept)


def test_what_holds_anything_is_never_formatted(tmp_path: Path, loop: str) -> None:
    subprocess.run(("mkfs.ext4", "-q", "-L", "precious", loop), check=True)
    base, listed = place(tmp_path, loop)
    done = run(tmp_path, base, listed)
    assert done.returncode == 3
    assert "no local SSD is blank" in done.stderr
    label = subprocess.run(
        ("blkid", "-p", "-s", "LABEL", "-o", "value", loop), capture_output=True, text=True
    )
    assert label.stdout.strip() == "precious"


def test_an_image_that_mounts_its_own_keeps_it(tmp_path: Path, loop: str) -> None:
    """As AWS's Deep Learning images do: /opt/dlami/nvme is there, and nothing is formatted."""
    subprocess.run(("mkfs.ext4", "-q", loop), check=True)
    base, listed = place(tmp_path, loop)
    ready = tmp_path / "dlami/nvme"
    ready.mkdir(parents=True)
    script = tmp_path / "script.sh"
    script.write_text(SCRIPT)
    (tmp_path / "fstab").touch()
    text = (
        f"mount --bind {tmp_path}/fstab /etc/fstab; mount {loop} {ready}; "
        f"sh {script} {base} root {ready} {tmp_path}/mnt '{listed}/ssd-*'; findmnt -no SOURCE -T {base}"
    )
    done = subprocess.run(("unshare", "--mount", "sh", "-c", text), capture_output=True, text=True)
    assert done.stdout.splitlines()[0] == str(ready), done.stderr
    assert done.stdout.splitlines()[1] == f"{loop}[/orch]"


def test_a_machine_without_one_is_left_as_it_is(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("needs root")
    base, listed = place(tmp_path)
    done = run(tmp_path, base, listed, f"mountpoint -q {base} || echo plain")
    assert (done.returncode, done.stdout) == (0, "plain\n")
