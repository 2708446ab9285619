"""uv for a machine of another kind than this computer: from uv's own wheel, in the same version."""

from __future__ import annotations

import platform
import subprocess
import zipfile
from pathlib import Path

from orchestrator.errors import StackError
from orchestrator.model import Lock, Silent
from orchestrator.stack.download import cached, collect
from orchestrator.stack.lock import parse_requirements
from orchestrator.stack.target import Target
from orchestrator.stack.uv import run_uv
from orchestrator.stack.wheels import cache_home, find_wheels

_OLDEST_LIBC = "glibc 2.28"
"""uv's wheels are built for this or an older version; the machine's own is not asked for."""


def uv_for(system: str, machine: str, here: Path) -> Path | bytes:
    """Return the uv binary for such a machine: the path of this computer's own if they are of the same
    kind.
    """
    if (system, machine) == (platform.system(), platform.machine()):
        return here
    version = subprocess.run([here, "--version"], capture_output=True, text=True, check=True).stdout.split()[
        1
    ]
    pinned = run_uv(
        ["pip", "compile", "-", "--universal", "--generate-hashes", "--no-header"],
        stdin=f"uv=={version}",
        purpose=f"uv {version} for {system} {machine} could not be found:",
    )
    lock = Lock(Path("uv.txt"), "requirements", "", parse_requirements(pinned, Path("uv.txt")))
    target = Target("3.11", "", system, machine, _OLDEST_LIBC, {})
    (wheel,) = find_wheels(lock, lock.pins, target, cache_home())
    collect([wheel], cache_home(), Silent())
    with zipfile.ZipFile(cached(wheel, cache_home())) as archive:
        for name in archive.namelist():
            if name.endswith("/scripts/uv"):
                return archive.read(name)
    raise StackError(f"{wheel.filename} contains no uv binary.")
