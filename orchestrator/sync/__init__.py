"""Trees from one side to the other: found, compared, sent as a difference, proven equal.

members   the paths that a scan would send, unread
scan      a local folder or file -> Scan: its Manifest, and what was left out and why
push      a Scan -> the same tree on the other side, hashed there again
fetch     objects of a bucket -> the same tree on the other side, which pulls them itself
stream    the same, shown there at once while it comes
prefetch  contents of a store -> where a push finds them on the other side
far_scan  a folder on the other side -> its Manifest
place     files that came from a store -> verified files here, all or none
pull      entries of a folder on the other side -> verified files here, all or none
pull_possible   the same, but an entry that must not be written does not keep the others back
"""

from __future__ import annotations

from orchestrator.sync.far import far_scan
from orchestrator.sync.fetch import Fetched, fetch, is_there, prefetch
from orchestrator.sync.members import members
from orchestrator.sync.place import place
from orchestrator.sync.pull import Pulled, pull, pull_possible
from orchestrator.sync.push import Pushed, push, push_latest, tree_path
from orchestrator.sync.scan import Scan, scan
from orchestrator.sync.stream import Streamed, listed_manifest, stream
from orchestrator.sync.talk import CannotStream, ObjectRefused

__all__ = [
    "CannotStream",
    "Fetched",
    "ObjectRefused",
    "Pulled",
    "Pushed",
    "Scan",
    "Streamed",
    "far_scan",
    "fetch",
    "is_there",
    "listed_manifest",
    "members",
    "place",
    "prefetch",
    "pull",
    "pull_possible",
    "push",
    "push_latest",
    "scan",
    "stream",
    "tree_path",
]
