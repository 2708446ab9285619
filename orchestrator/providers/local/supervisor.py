"""Start and find the supervisor of a machine, and set the time of a preemption. Its program is
`supervise`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from orchestrator.providers.local import processes
from orchestrator.providers.local.store import Folder, Owner, read_json, write_json
from orchestrator.providers.local.tools import search_path

DEADLINE_GRACE_S = 15.0
"""Seconds after its deadline at which a machine is killed if it has not powered itself off."""
_START = (
    "import sys; sys.path.insert(0, sys.argv[1]);"
    "from orchestrator.providers.local.supervise import main; main(sys.argv[2:])"
)


def spawn(owner: Owner) -> str:
    """Start the supervisor of a recorded machine, pass it the lock, and wait until the machine is ready.

    Returns "", or the reason if it failed.
    """
    reading, writing = os.pipe()
    root = str(Path(__file__).resolve().parents[3])
    arguments = [str(owner.folder.path), str(owner.fd), str(writing)]
    with open(reading, "rb") as report:
        try:
            with (owner.folder.path / "supervisor.log").open("ab") as log:
                subprocess.run(
                    [sys.executable, "-I", "-c", _START, root, *arguments],
                    env={"PATH": search_path(), "HOME": os.environ.get("HOME", "/")},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(owner.fd, writing),
                    start_new_session=True,
                    cwd="/",
                    check=True,
                )
        finally:
            os.close(writing)
        said = report.read()
    return str(json.loads(said)["error"]) if said else "its supervisor died while creating it"


def supervisor_of(folder: Folder) -> processes.Process | None:
    found = read_json(folder.path / "supervisor.json")
    return processes.Process(**found) if found else None


def preempt_at(folder: Folder, when: float) -> None:
    """Let the supervisor kill the machine at `when`, in seconds since the epoch."""
    write_json(folder.path / "preempt.json", {"at": when})
    supervisor = supervisor_of(folder)
    if supervisor is not None:
        supervisor.signal(signal.SIGUSR1)
