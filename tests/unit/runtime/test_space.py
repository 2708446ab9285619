"""A full disk is told by the exit status of a verb, whatever noticed it first."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.runtime import space

ROOT = Path(__file__).resolve().parents[3]
FULL = """
set -e
mount --rbind / /mnt
for folder in /tmp /var/tmp; do mount -t tmpfs -o size=4k tmpfs $folder; done
for folder in $KEPT; do mkdir -p "$folder" && mount --bind "/mnt$folder" "$folder"; done
for folder in /tmp /var/tmp; do head -c 4096 /dev/zero >$folder/file; done
cd /proc
exec "$0" "$@"
"""
VERB = "import sys; from orchestrator.runtime.__main__ import main; sys.exit(main(sys.argv[1:]))"


def kept() -> list[str]:
    """What the verb needs of this computer's temporary folders: the checkout and its Python may lie there."""
    needed = [str(ROOT), sys.prefix, sys.base_prefix]
    return [folder for folder in needed if folder.startswith(("/tmp/", "/var/tmp/"))]


def in_full_disk(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the runtime's verb where no temporary folder has room."""
    private = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    if subprocess.run(
        [*private, "mount", "-t", "tmpfs", "tmpfs", "/var/tmp"], capture_output=True
    ).returncode:
        pytest.skip("no file system can be mounted here")
    argv = [*private, "bash", "-c", FULL, sys.executable, "-c", VERB, *words]
    environment = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], "KEPT": " ".join(kept())}
    return subprocess.run(argv, capture_output=True, text=True, env=environment)


def test_a_model_check_without_room_ends_as_any_verb_does() -> None:
    done = in_full_disk("check-model", str(ROOT / "pyproject.toml"))
    assert (done.returncode, done.stdout) == (space.STATUS, ""), done.stderr
    assert "Traceback" not in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_file_that_is_missing_is_no_full_disk(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        (tmp_path / "x").read_text()
    assert not space.is_full(missing.value)
    assert not space.is_full(FileNotFoundError(errno.ENOENT, "No usable temporary directory found"))
    assert space.is_full(OSError(errno.EDQUOT, "")) and not space.is_full(ValueError())
