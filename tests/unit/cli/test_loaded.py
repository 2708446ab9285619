"""What each verb loads: what it does not need is not imported, as that is most of what a command takes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SDKS = ("tensorflow", "keras", "numpy", "boto3", "botocore", "google.auth")
PROFILE = ("pydantic", "yaml", "orchestrator.profile")
REMOTE = (
    "paramiko",
    "asyncio",
    "orchestrator.session.session",
    "orchestrator.stack",
    "orchestrator.sync.push",
)
SEARCH = (
    "orchestrator.parity.verdict",
    "orchestrator.parity.changes",
    "orchestrator.replay",
    "orchestrator.resume",
    "orchestrator.sizing",
    "orchestrator.profiling",
    "orchestrator.stalls",
)
OFFERS = ("orchestrator.plan", "orchestrator.catalog", "orchestrator.leases.provision")
VERBS = {
    "help": (("orchestrator.cli.app",), (*PROFILE, *REMOTE, *SEARCH, *OFFERS)),
    "status": (("orchestrator.leases.status",), (*PROFILE, *REMOTE, *SEARCH, *OFFERS)),
    "logs": (("orchestrator.api.logs",), (*PROFILE, *REMOTE, *SEARCH, *OFFERS)),
    "pull": (("orchestrator.api.pulling",), (*PROFILE, *REMOTE, *SEARCH, *OFFERS)),
    "runs": (("orchestrator.runs.history",), (*PROFILE, "paramiko", *SEARCH, *OFFERS)),
    "train": (
        ("orchestrator.api.training", "orchestrator.training.on_lease", "orchestrator.training.one_run"),
        ("paramiko", "asyncio", *SEARCH, *OFFERS),
    ),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_loads_only_what_it_needs(verb: str) -> None:
    modules, left_out = VERBS[verb]
    program = f"import sys, orchestrator.cli.app, {', '.join(modules)}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120
    )
    loaded = set(done.stdout.split())
    assert not loaded.intersection((*left_out, *SDKS))


START = {"cli", "errors", "model"}
FOUND = START | {"api", "hosts", "report", "session"}
STARTS = {
    "--help": (START, 43),
    "up --bogus": (START, 43),
    "explain": (START | {"report"}, 48),
    "status --json": (FOUND | {"leases", "providers"}, 82),
    "runs --json": (FOUND | {"ledger", "runs", "storage"}, 88),
    "down --json": (FOUND | {"jobs", "leases", "ledger", "providers", "storage"}, 117),
}
"""Command line -> the rooms that it loads in an empty folder, and the most modules of orch."""


@pytest.mark.parametrize("line", STARTS)
def test_a_command_loads_few_modules_of_few_rooms(line: str, tmp_path: Path) -> None:
    program = (
        "import atexit, sys; from orchestrator.cli import main\n"
        "atexit.register(lambda: print('loaded', *sys.modules))\n"
        "main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *line.split()],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
        timeout=120,
    )
    assert done.returncode in (0, 2), done.stderr
    loaded = done.stdout.rpartition("loaded ")[2].split()
    own = [name.split(".") for name in loaded if name.startswith("orchestrator.")]
    rooms, most = STARTS[line]
    assert {room for _, room, *_ in own} == rooms
    assert len(own) <= most
    assert not {*loaded}.intersection((*SDKS, *PROFILE, *REMOTE, "ssl", "ctypes"))
