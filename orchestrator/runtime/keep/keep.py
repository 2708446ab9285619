"""Keep copies of a run's checkpoints for as long as it goes on, in a process of its own.

checkpoints BASE RUN    prints {"snapshots": [{"seq", "taken_at", "files"}]}, the newest last
"""

# Thin over the kernel: descriptors, modes and races are said in os calls.
# ruff: noqa: PTH110

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any, Dict, List

from ..rundir import RunDir, held, open_run
from .snapshot import Keeper, manifest, numbers

_POLL_S = 1.0
_PATIENCE_S = 10.0
_SHARE = 10.0
"""At most one part in ten of the time is spent on copying."""


def main(argv: List[str]) -> int:
    base, run_id = argv
    run = open_run(base, run_id)
    told = [found for found in (manifest(run, seq) for seq in numbers(run)) if found is not None]
    json.dump({"snapshots": told}, sys.stdout)
    return 0


def keep(run: RunDir, spec: Dict[str, Any]) -> None:
    """Copy what the run's checkpoints become until it has ended, and what they are then."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the machine goes down: the last save is wanted most
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(5)
    keeper = Keeper(run, list(spec["checkpoints"]))
    while not os.path.exists(run.exit) and held(run):
        begun = time.monotonic()
        taken = keeper.look(_PATIENCE_S)
        spent = time.monotonic() - begun
        time.sleep(max(_POLL_S, _SHARE * spent if taken else spent))
    keeper.look(0.0)
