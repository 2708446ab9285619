"""Make a folder contain the objects that the client lists, fetched directly from their store.

The protocol, in frames (transfer.frames), on standard input and output:

    client  {"objects": [[path, size, version, checksum], …], "single"}
    server  {"links": [index, …]}         request links for these objects; as late as possible
    client  {"links": [[url, {header: value}], …]}
    server  {"bytes": n}                  bytes received so far; now and then
    server  {"digest", "sha256": […], "fetched", "damaged"}
                                          the tree's digest, the hash of every object, how many were
                                          fetched, and how often one was fetched again
    server  {"error", "text", …}          at any time; ends the conversation

The tree is left as by `apply`, with its manifest and stamps. Files are put in place one by one, each complete
and verified; what belongs to no object is removed before the first is fetched.
"""

from __future__ import annotations

import sys
from typing import Any, List

from ..transfer import apply, tree
from ..transfer.apply import Refused
from ..transfer.frames import Broken, Read, Write, receive, send
from .objects import Client, Fetch, rows_of
from .staging import Wanted


def main(argv: List[str]) -> int:
    """Run with [root]. Exit status 1 if the tree could not be fetched, 2 for a wrong command line."""
    if len(argv) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    return serve(argv[0], tree.incoming(), tree.outgoing())


def serve(root: str, read: Read, write: Write) -> int:
    """Run the protocol. Returns the exit status."""

    def say(message: Any) -> None:
        send(write, message)
        write(b"")

    try:
        ask = receive(read)
        wanted = [Wanted(*row) for row in ask["objects"]]
        apply.refuse_hostile(rows_of(wanted))
        place = apply.make_place(root, ask["single"])
        with apply.alone(place):
            say(Fetch(place, wanted, _Far(read, say), may_fork=True).run(ask["single"], root))
    except Refused as refusal:
        say(refusal.facts)
    except Broken as error:
        print(f"The fetch ended early: {error}.", file=sys.stderr)
    except OSError as error:
        say({"error": "failed", "text": str(error)})
    else:
        return 0
    return 1


class _Far(Client):
    """The client of the protocol: it supplies links and gets progress reports."""

    def __init__(self, read: Read, say: apply.Say) -> None:
        self._read = read
        self._say = say

    def links(self, numbers: List[int]) -> List[Any]:
        self._say({"links": numbers})
        return list(receive(self._read)["links"])

    def progress(self, count: int) -> None:
        self._say({"bytes": count})
