"""What a disk holds: copies of the folders in which an image could carry something from machine to machine.

The user's files, keys, identity, logs, and what boots wrote. A machine of the image starts with these.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

FOLDERS = (
    "home",
    "root",
    "opt/orch",
    "var/lib/orch",
    "var/lib/cloud",
    "var/lib/google",
    "var/google-sudoers.d",
    "var/google-users.d",
    "var/log",
    "tmp",
    "etc/systemd/system",
)
FILES = (
    "etc/machine-id",
    "etc/passwd",
    "etc/group",
    "etc/shadow",
    "etc/boto.cfg",
    "etc/google_instance_id",
    "var/lib/orch-first-boot",
    "var/lib/orch-user-data",
)
PATTERNS = ("etc/ssh/ssh_host_*", "etc/sudoers.d/*", "usr/local/sbin/*")


def copied(pid: int, cloud: str, below: Path | None = None) -> Path:
    """Copy the disk of the machine whose first process is `pid`, while it still shows its files.

    `below`: a folder that ends with the cloud; default: that of temporary files.
    """
    files = Path(tempfile.mkdtemp(prefix=f"orch-{cloud}-disk-", dir=below))
    files.chmod(0o755)  # it becomes the mode of /
    root = Path(f"/proc/{pid}/root")
    found = [name for name in (*FOLDERS, *FILES) if (root / name).exists()]
    found += [str(path.relative_to(root)) for pattern in PATTERNS for path in root.glob(pattern)]
    for name in found:
        (files / name).parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cp", "-a", str(root / name), str(files / name)], check=False, capture_output=True)
    return files


def lay_out(files: Path, pid: int) -> None:
    """Put the files of an image on the disk of a machine that has not booted yet."""
    subprocess.run(["cp", "-a", f"{files}/.", f"/proc/{pid}/root/"], check=True, capture_output=True)
