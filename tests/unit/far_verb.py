"""A verb of the runtime on a machine that is a folder here, as a fork that begins after its imports.

What such a machine has is the runtime of this source, so the fork runs the same code; see tests/forked.py.
`start` is no such verb: the supervisor that it leaves is found by its command line.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestrator.stack.runtime_files import runtime_digest
from tests.forked import Forked

_VERBS = ("state", "tail", "outputs", "scan", "apply", "pack", "checkpoints", "events", "uploads", "cancel")


def forked(words: Sequence[str]) -> Forked | None:
    """Begin the verb in `words`, a command for the machine; None for any other command."""
    if words[1:2] != ("-IS",) or words[3:4] == () or words[3] not in _VERBS:
        return None
    entry = Path(words[2])
    if entry.parent.name != runtime_digest() or not (entry.is_file() and Path(words[0]).exists()):
        return None
    pipe = subprocess.PIPE
    streams = {"stdin": pipe, "stdout": pipe, "stderr": pipe}
    return Forked(
        "orchestrator.runtime", words[3:], prepared_by=__name__, env=os.environ, bufsize=0, **streams
    )


def prepare(_environ: Mapping[str, str]) -> None:
    """Import what these verbs do; not `__main__`, which each of them runs."""
    from orchestrator.runtime.agent import events, launch  # noqa: F401
    from orchestrator.runtime.keep import keep  # noqa: F401
    from orchestrator.runtime.transfer import apply, outputs, tree  # noqa: F401
    from orchestrator.runtime.upload import upload  # noqa: F401
