"""Opens and reads of each path, as counted by the runtime's shim in the processes of one run."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.model.answers import Malformed
from orchestrator.model.files import regular_bytes
from orchestrator.model.plain import plain

ROW = struct.Struct("<256sQQQQ")
"""One slot of a table: a path (padded with zeros), opens, reads, bytes, nanoseconds in reads."""

_MOST_BYTES = 1 << 23
"""Maximum bytes of a table, which is more than the runtime's shim writes."""

_MOST_TABLES = 1000
"""Maximum number of processes whose tables are read."""


_CODE = (".py", ".pyc", ".so", ".pyi")
_ENVIRONMENT = (
    "/site-packages/",
    "/dist-packages/",
    ".so.",
    "/__pycache__/",
    "/lib/python",
    "/etc/",
    "/locale/",
)
"""Parts of paths that belong to programs rather than data."""


@dataclass(frozen=True)
class FileReads:
    """One path: how often it was opened, how often read, the bytes and the seconds."""

    path: str
    opens: int
    reads: int
    bytes: int
    seconds: float

    def as_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "opens": self.opens,
            "reads": self.reads,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 6),
        }


def reads_of(folder: Path) -> Sequence[FileReads]:
    """Return the reads of all processes, most bytes first; () without such a folder. Raises Malformed."""
    sums: dict[str, list[int]] = {}
    for table in sorted(folder.glob("*.reads"))[:_MOST_TABLES]:
        for path, *counts in _rows(_table(table)):
            if path.endswith(_CODE) or any(part in path for part in _ENVIRONMENT):
                continue
            kept = sums.setdefault(path, [0, 0, 0, 0])
            sums[path] = [one + other for one, other in zip(kept, counts, strict=True)]
    found = [FileReads(path, c[0], c[1], c[2], c[3] / 1e9) for path, c in sums.items()]
    return sorted(found, key=lambda each: (-each.bytes, -each.opens, each.path))


def _table(path: Path) -> bytes:
    try:
        return regular_bytes(path, _MOST_BYTES)
    except FileNotFoundError:
        return b""
    except Malformed as error:
        raise Malformed(f"{path.name} is not a valid table of reads: {error}") from None


def _rows(raw: bytes) -> list[tuple[str, int, int, int, int]]:
    whole = len(raw) // ROW.size * ROW.size
    return [
        (plain(name.rstrip(b"\0").decode(errors="replace")), opens, reads, count, nanoseconds)
        for name, opens, reads, count, nanoseconds in ROW.iter_unpack(raw[:whole])
        if name[:1] == b"/"
    ]
