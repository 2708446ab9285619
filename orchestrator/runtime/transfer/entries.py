"""Describe trees by rows: their canonical encoding, the difference of two trees, and paths that must be
refused.

Names are text that represents bytes: UTF-8, with surrogates for other bytes (`surrogateescape`), regardless
of the locale of either side.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from json.encoder import encode_basestring_ascii as quoted
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple


class Row(NamedTuple):
    """One path, in the field order of model.Entry. kind: file, dir or link; "special" only in trees that were
    found."""

    path: str
    kind: str
    size: int = 0
    mode: int = 0
    digest: str = ""
    target: str = ""


class Difference(NamedTuple):
    """The changes that turn one tree into another; true if there are any.

    `content` and `shape` are indices of wanted rows: files whose bytes are missing; and paths that need no
    bytes, but must be created or get another mode. `remove` are paths, parents before their contents.
    """

    content: Tuple[int, ...]
    shape: Tuple[int, ...]
    remove: Tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.content or self.shape or self.remove)


FINGERPRINT = 16
"""Hexadecimal digits that tell the rows of two trees apart. That they are equal proves nothing."""


def raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def ordered(rows: Sequence[Row]) -> List[Row]:
    return sorted(rows, key=lambda row: raw(row.path))


def digest(rows: Sequence[Row]) -> str:
    """Return the SHA-256 over every field of every row, in the order of the paths' bytes."""
    return hashlib.sha256(f"[{','.join(map(encoded, ordered(rows)))}]".encode()).hexdigest()


def encoded(row: Row) -> str:
    """Return the row as JSON, as json.dumps does without spaces, in a third of its time."""
    path, kind, size, mode, hashed, target = row
    return f"[{quoted(path)},{quoted(kind)},{size},{mode},{quoted(hashed)},{quoted(target)}]"


def fingerprints(rows: Sequence[Row]) -> List[str]:
    """Return FINGERPRINT hexadecimal digits for each row, which depend on every field of it."""
    return [hashlib.sha256(encoded(row).encode()).hexdigest()[:FINGERPRINT] for row in rows]


def difference(have: Sequence[Row], want: Sequence[Row]) -> Difference:
    """Return the changes that turn `have` into `want`."""
    before = {row.path: row for row in have}
    kinds = {row.path: row.kind for row in want}
    content, shape = [], []
    for number, row in enumerate(want):
        old = before.get(row.path)
        if row.kind == "file" and (old is None or (old.kind, old.digest) != ("file", row.digest)):
            content.append(number)
        elif old != row:
            shape.append(number)
    remove = tuple(row.path for row in ordered(have) if kinds.get(row.path) != row.kind)
    return Difference(tuple(content), tuple(shape), remove)


def first_difference(one: Sequence[Row], other: Sequence[Row]) -> Optional[str]:
    """Return the first path, in order, in which the two trees differ; None if they are equal."""
    for left, right in zip(ordered(one), ordered(other)):  # noqa: B905  (`strict` came after 3.9)
        if left != right:
            return min(left.path, right.path, key=raw)
    longer = max(one, other, key=len)
    shorter = min(len(one), len(other))
    return ordered(longer)[shorter].path if len(longer) > shorter else None


# ---------------------------------------------------------------- paths that must not be followed

_DRIVE = re.compile(r"[A-Za-z]:([/\\]|\Z)")
_HEX = re.compile(r"[0-9a-f]{64}\Z")


class Refusal(NamedTuple):
    """A row that must not be written. `reason` is one of the constants below; `why` is text for people."""

    path: str
    reason: str
    why: str


LONGEST_NAME = 255
"""Most bytes of one name: the limit of every file system of a machine."""
UNSAFE_PATH = "unsafe_path"
NAME_TOO_LONG = "name_too_long"
NOT_A_FILE = "not_a_file"
UNREADABLE = "unreadable"
TOO_LARGE = "too_large"
INVALID = "invalid"
LINK_LEADS_OUT = "link_leads_out"
NAME_CLASH = "name_clash"


def hostile(rows: Sequence[Row], *, sealed: bool) -> List[Tuple[str, str]]:
    """Return (path, why) of every row that must not be written, whoever sent it.

    `sealed` adds what is acceptable only in a tree of one's own: links that lead out of it, and names that
    some file systems treat as equal.
    """
    return [(found.path, found.why) for found in refusals(rows, sealed=sealed, folding=sealed)]


def refusals(rows: Sequence[Row], *, sealed: bool, folding: bool) -> List[Refusal]:
    """Like `hostile`, with reasons. `folding`: also refuse names that differ only in case or composition."""
    found = [Refusal(row.path, reason, why) for row in rows for reason, why in _wrong(row, sealed)]
    found.extend(Refusal(path, NAME_CLASH, why) for path, why in conflicts(rows))
    if folding:
        found.extend(Refusal(path, NAME_CLASH, why) for path, why in _collisions(rows))
    return found


def _wrong(row: Row, sealed: bool) -> Iterator[Tuple[str, str]]:
    for why in _wrong_path(row.path):
        yield UNSAFE_PATH, why
    if _is_too_long(row.path):
        yield NAME_TOO_LONG, f"a name in it has more than {LONGEST_NAME} bytes"
    if row.kind == "unreadable":
        yield UNREADABLE, "it cannot be read on the machine"
    elif row.kind == "too_large":
        yield TOO_LARGE, f"it has {row.size:,} bytes, too many to be read; train.outputs chooses what comes"
    elif row.kind == "special":
        yield NOT_A_FILE, "it is a device, a pipe or a socket"
    elif row.kind not in ("file", "dir", "link"):
        yield NOT_A_FILE, f"a {row.kind or 'thing'} is neither file, folder nor link"
    if row.kind == "file" and not (_HEX.match(row.digest) and row.size >= 0):
        yield INVALID, "its size or hash is not one"
    if row.kind == "link" and (not row.target or "\0" in row.target):
        yield INVALID, "the link leads nowhere"
    elif row.kind == "link" and sealed and leads_out(row):
        yield LINK_LEADS_OUT, f"the link leads out of the folder, to {row.target}"


def _wrong_path(path: str) -> Iterator[str]:
    parts = path.split("/")
    if path.startswith("/"):
        yield "the path is absolute"
    elif _DRIVE.match(path):
        yield "the path names a drive"
    elif "" in parts:
        yield "the path has an empty part"
    if ".." in parts or "." in parts:
        yield "the path climbs with . or .."
    if "\0" in path:
        yield "the path holds a NUL character"


def _is_too_long(path: str) -> bool:
    return len(path) > LONGEST_NAME // 4 and any(len(raw(part)) > LONGEST_NAME for part in path.split("/"))


def leads_out(link: Row) -> bool:
    """Whether a link's target may lie outside the tree.

    `..` is allowed only before the first name: after it, a name that is itself a link could make `..` mean
    another folder than the text suggests.
    """
    if link.target.startswith("/") or _DRIVE.match(link.target):
        return True
    parts = [part for part in link.target.split("/") if part not in ("", ".")]
    climbs = next((number for number, part in enumerate(parts) if part != ".."), len(parts))
    return climbs > link.path.count("/") or ".." in parts[climbs:]


def conflicts(rows: Sequence[Row]) -> Iterator[Tuple[str, str]]:
    """Yield paths that cannot both exist: named twice, or below something that is not a folder."""
    kinds: Dict[str, str] = {}
    for row in rows:
        if row.path in kinds:
            yield row.path, "it is named twice"
        kinds[row.path] = row.kind
    good = set()
    for path in kinds:
        folder = path.rpartition("/")[0]
        if folder in good:
            continue
        blocks = [above for above in parents(path) if kinds.get(above, "dir") != "dir"]
        for above in blocks:
            yield path, f"{above} is a {kinds[above]}, and cannot hold it"
        if not blocks:
            good.add(folder)


def _collisions(rows: Sequence[Row]) -> Iterator[Tuple[str, str]]:
    seen: Dict[str, str] = {}
    for path in _with_parents(rows):
        other = seen.setdefault(folded(path), path)
        if other != path:
            yield path, f"it differs from {other} only in case or in how its characters are composed"


def folded(path: str) -> str:
    """Return a key that is equal for names that some file systems treat as equal."""
    if path.isascii():
        return path.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def _with_parents(rows: Sequence[Row]) -> Iterator[str]:
    done: Set[str] = set()
    for row in rows:
        for path in (*parents(row.path), row.path):
            if path not in done:
                done.add(path)
                yield path


def parents(path: str) -> Iterator[str]:
    """Yield the folders above a path, the outermost first, without the root."""
    at = path.find("/")
    while at > 0:
        yield path[:at]
        at = path.find("/", at + 1)
