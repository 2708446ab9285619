"""The verbs of the runtime: `python -IS <root>/enter.py VERB …`.

A verb prints one JSON object to standard output, unless it says otherwise; errors go to standard error as
plain text. Exit status 2: the command line was wrong; 28: the machine's disk is full. Without -S: verbs that
look at installed packages.
"""

from __future__ import annotations

import importlib
import sys
from typing import List, Optional

from .space import STATUS, is_full

VERBS = {
    "scan": "transfer.tree",
    "apply": "transfer.tree",
    "pack": "transfer.tree",
    "fetch": "fetch.serve",
    "stream": "fetch.stream",
    "start": "agent.launch",
    "state": "agent.launch",
    "tail": "agent.launch",
    "cancel": "agent.launch",
    "outputs": "agent.launch",
    "watch": "agent.watch",
    "events": "agent.events",
    "checkpoints": "keep.keep",
    "uploads": "upload.upload",
    "attest": "attest.attest",
    "bytecode": "attest.bytecode",
    "gpus": "attest.gpus",
    "run": "observe.runner",
    "check-model": "modelcheck",
    "fork-server": "replay.fork_server",
    "room": "sampler.room",
    "meet": "meeting",
}
"""Verb -> module of this package, imported when it is asked for; each has `main(argv) -> exit status`."""

_SHARED = frozenset(module for module in VERBS.values() if list(VERBS.values()).count(module) > 1)


def main(argv: Optional[List[str]] = None) -> int:
    """Run one verb. A module with several verbs gets [verb, …], one with a single verb only its arguments."""
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments or arguments[0] not in VERBS:
        asked = arguments[0] if arguments else "nothing"
        print(f"No such verb: {asked}. There are: {', '.join(sorted(VERBS))}.", file=sys.stderr)
        return 2
    module = VERBS[arguments[0]]
    verb_main = importlib.import_module(f".{module}", __package__).main
    try:
        return int(verb_main(arguments if module in _SHARED else arguments[1:]))
    except OSError as error:
        if not is_full(error):
            raise
        print(error, file=sys.stderr)
        return STATUS


if __name__ == "__main__":
    sys.exit(main())
