"""A machine's own SSD: formatted where it is blank, mounted on our folder. Real loop devices and mkfs."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from orchestrator.model import Machine, MachineState
from orchestrator.session.local_ssd import SCRIPT, _which, has_one


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
def attach(tmp_path: Path) -> Iterator[Callable[[int], list[str]]]:
    """Make so many blank devices, of 256 MiB that take no room."""
    if os.geteuid():
        pytest.skip("needs root")
    made: list[str] = []

    def attached(count: int) -> list[str]:
        for number in range(count):
            image = tmp_path / f"ssd-{number}.img"
            with image.open("wb") as file:
                file.truncate(256 << 20)
            found = subprocess.run(("losetup", "--find", "--show", image), capture_output=True, text=True)
            if found.returncode:
                pytest.skip(f"no loop device: {found.stderr.strip()}")
            made.append(found.stdout.strip())
        return made

    yield attached
    for device in made:
        subprocess.run(("losetup", "--detach", device), check=True)


@pytest.fixture
def loop(attach: Callable[[int], list[str]]) -> str:
    return attach(1)[0]


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


def run(
    tmp_path: Path, base: Path, listed: Path, after: str = "", path: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """The script in mount namespaces of its own, then `after`; /etc/fstab is a copy. `path`: its programs."""
    script = tmp_path / "script.sh"
    script.write_text(SCRIPT)
    (tmp_path / "fstab").touch()
    argv = [base, "root", tmp_path / "dlami/nvme", tmp_path / "mnt", f"{listed}/ssd-*"]
    words = " ".join(f"'{word}'" for word in argv)
    given = f"PATH={path} " if path else ""
    text = f"mount --bind {tmp_path}/fstab /etc/fstab; {given}sh {script} {words} || exit $?; {after}"
    return subprocess.run(("unshare", "--mount", "sh", "-c", text), capture_output=True, text=True)


def test_a_blank_one_is_formatted_and_holds_our_folder(tmp_path: Path, loop: str) -> None:
    base, listed = place(tmp_path, loop)
    script = tmp_path / "script.sh"
    again = f"sh {script} '{base}' root '{tmp_path}/dlami/nvme' '{tmp_path}/mnt' '{listed}/ssd-*'"
    done = run(tmp_path, base, listed, f"findmnt -no SOURCE -T {base}; ls {base}; {again}; echo twice: $?")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["1", "1", f"{tmp_path}/mnt"]
    assert lines[1].startswith(loop)
    assert lines[2:] == ["active", "lost+found", "twice: 0"] or lines[2:] == ["active", "twice: 0"]
    kept = (tmp_path / "fstab").read_text().splitlines()
    assert [line.split()[1] for line in kept] == [f"{tmp_path}/mnt", str(base)]
    assert all("nofail" in line for line in kept)
    assert kept[0].startswith("UUID="), "after a boot a device may have another name"


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
    assert done.stdout.splitlines()[0].strip() == str(ready), done.stderr
    assert done.stdout.splitlines()[1] == f"{loop}[/orch]"


def test_a_machine_without_one_is_left_as_it_is(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("needs root")
    base, listed = place(tmp_path)
    done = run(tmp_path, base, listed, f"mountpoint -q {base} || echo plain")
    assert (done.returncode, done.stdout) == (0, "plain\n")


def programs(tmp_path: Path, *missing: str) -> Path:
    """A folder with all programs of this computer but those."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for place in ("/usr/sbin", "/usr/bin", "/sbin", "/bin"):
        for program in Path(place).iterdir():
            if program.name not in missing and not (folder / program.name).is_symlink():
                (folder / program.name).symlink_to(program)
    return folder


@pytest.mark.skipif(
    shutil.which("mkfs.btrfs", path="/usr/sbin:/sbin") is None
    or "btrfs" not in Path("/proc/filesystems").read_text(),
    reason="no btrfs on this computer",
)
@pytest.mark.parametrize("count", [2, 4])
def test_several_are_one_striped_volume(
    tmp_path: Path, attach: Callable[[int], list[str]], count: int
) -> None:
    """By btrfs, where md is not there: a kernel without it, or an image without its program."""
    base, listed = place(tmp_path, *attach(count))
    write = f"dd if=/dev/urandom of={base}/large bs=1M count=64 status=none; sync"
    usage = f"btrfs filesystem usage -b {tmp_path}/mnt | grep -A{count} '^Data,RAID0'"
    done = run(tmp_path, base, listed, f"{write}; {usage}; stat -c %s {base}/large {base}/active",
               programs(tmp_path, "mdadm"))  # fmt: skip
    assert done.returncode == 0, done.stderr
    first, profile, *rest = done.stdout.splitlines()
    assert first.split() == [str(count), str(count), f"{tmp_path}/mnt"]
    assert "Data,RAID0" in profile
    assert len({line.split()[0] for line in rest[:count]}) == count, "each of them holds a part"
    assert rest[count:] == [str(64 << 20), "0"], "what was there before is there"
    kept = (tmp_path / "fstab").read_text().splitlines()
    assert kept[0].split()[0].startswith("UUID=") and kept[0].split()[2] == "btrfs"


def test_where_nothing_can_join_them_the_first_serves_and_that_is_said(
    tmp_path: Path, attach: Callable[[int], list[str]]
) -> None:
    base, listed = place(tmp_path, *attach(2))
    done = run(
        tmp_path, base, listed, f"findmnt -no FSTYPE -T {base}", programs(tmp_path, "mdadm", "mkfs.btrfs")
    )
    told, kind = done.stdout.splitlines()
    assert (told.split()[:2], kind) == (["1", "2"], "ext4")
    assert "1 of the machine's 2 local SSDs" in _which(told)


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ("1 1 /mnt/orch-ssd", "the machine's local SSD"),
        ("  /opt/dlami/nvme", "the machine's local SSD"),
        ("4 4 /mnt/orch-ssd", "the machine's 4 local SSDs, as one striped volume"),
    ],
)
def test_what_was_used_is_said(told: str, words: str) -> None:
    assert _which(told) == words
