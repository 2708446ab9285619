"""Make a folder the objects that the other side names, fetched from where they are.

The conversation, in frames (transfer.frames), on standard input and output:

    them  {"objects": [[path, size, version, checksum], …], "single"}
    us    {"links": [index, …]}         links for these, please; asked for as late as they are needed
    them  {"links": [[url, {header: value}], …]}
    us    {"bytes": n}                  that came so far; now and then
    us    {"digest", "sha256": […], "fetched", "damaged"}
                                        of what now lies here, of every object, how many came and how many
                                        had to come again
    at any time, us  {"error", "text", …}   and the end

The tree is left as `apply` leaves it, with its manifest and stamps. Files take their places one by one, each
whole and verified; what belongs to no object is removed at the end.
"""

from __future__ import annotations

import sys
from typing import Any, List

from ..transfer import apply, tree
from ..transfer.apply import Refused
from ..transfer.frames import Broken, Read, Write, receive, send
from .download import Wanted
from .objects import Client, Fetch, rows_of


def main(argv: List[str]) -> int:
    """[root]. Exit status 1 where the tree is not there, 2 for a wrong command line."""
    if len(argv) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    return serve(argv[0], tree.incoming(), tree.outgoing())


def serve(root: str, read: Read, write: Write) -> int:
    """Hold the conversation."""

    def say(message: Any) -> None:
        send(write, message)
        write(b"")

    try:
        ask = receive(read)
        wanted = [Wanted(*row) for row in ask["objects"]]
        apply.refuse_hostile(rows_of(wanted))
        place = apply.make_place(root, ask["single"])
        with apply.alone(place):
            say(Fetch(place, wanted, _Far(read, say)).run(ask["single"], root))
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
    """The other side of the conversation: it makes links, and is told what came."""

    def __init__(self, read: Read, say: apply.Say) -> None:
        self._read = read
        self._say = say

    def links(self, numbers: List[int]) -> List[Any]:
        self._say({"links": numbers})
        return list(receive(self._read)["links"])

    def progress(self, count: int) -> None:
        self._say({"bytes": count})
