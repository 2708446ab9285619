"""What each verb loads: what it does not need is not imported, as that is most of what a command takes."""

from __future__ import annotations

import subprocess
import sys

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
        ("orchestrator.api.training", "orchestrator.training.attended", "orchestrator.training.one_run"),
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
