"""Trees of files as facts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from .answers import Between, Count, Like


@dataclass(frozen=True)
class Entry:
    """One path of a tree. `kind` is file, dir or link; `digest` is that of a file's content; `target` is that
    of a link.

    In a run's outputs `kind` can also be special (a device, pipe or socket), unreadable or too_large; such
    entries are listed, never transferred.
    """

    path: str
    kind: Annotated[str, Like("[a-z_]{1,20}")]
    size: Count = 0
    mode: Annotated[int, Between(0, 0o7777)] = 0
    digest: Annotated[str, Like("[0-9a-f]{64}|")] = ""
    target: str = ""


@dataclass(frozen=True)
class Manifest:
    """The entries of a tree, sorted by path. `digest` covers every field of every entry."""

    entries: tuple[Entry, ...]
    digest: str


@dataclass(frozen=True)
class TreeLink:
    """A synced tree at `source` (absolute) that appears in a run's working folder at `target`.

    `target` is relative ("." for the code itself) or absolute. A tree that is `copied` is private to the run;
    others share their bytes. With `digest`, the tree is used only while its manifest has that digest.
    `stream`: the file on that side with the state of the fetch, for a tree that is shown while it is still
    being fetched.
    """

    source: str
    target: str
    copied: bool = False
    digest: str = ""
    stream: str = ""


class Refused(StrEnum):
    """Why a file was not fetched. The first seven concern its entry; the others occur during the transfer."""

    UNSAFE_PATH = "unsafe_path"
    NOT_A_FILE = "not_a_file"
    UNREADABLE = "unreadable"
    TOO_LARGE = "too_large"
    INVALID = "invalid"
    LINK_LEADS_OUT = "link_leads_out"
    NAME_CLASH = "name_clash"
    NAME_TOO_LONG = "name_too_long"
    FOLDER_HERE = "folder_here"
    NOT_WRITABLE = "not_writable"
    CHANGED = "changed"

    @property
    def can_come(self) -> bool:
        """Whether listing the files again may be enough to fetch it, with nothing changed on the machine."""
        return self in (Refused.CHANGED, Refused.FOLDER_HERE)


@dataclass(frozen=True)
class NotFetched:
    """One path that was not fetched, and the reason. `detail` is a clause for people."""

    path: str
    kind: str
    reason: Refused
    detail: str

    @property
    def can_come(self) -> bool:
        return self.reason.can_come
