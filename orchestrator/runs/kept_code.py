"""The code of a run, stored beside its record, so that the run can be repeated after the project has changed.

`runs/<id>/code/`: `tree.json` lists every path with its mode and digest, `files.tar.gz` has the files that
git's revision does not have (outside a repository: all), `changes.diff` shows them to people, `profile.yaml`
is the profile. Files that git ignores, and files whose names suggest secrets, are listed, never copied.
"""

from __future__ import annotations

import fnmatch
import hashlib
import io
import json
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from orchestrator.hosts.atomic import atomic_write
from orchestrator.model import CodeFacts, Entry, Manifest
from orchestrator.model.answers import LONG, Malformed, Most, decoded
from orchestrator.model.files import regular_bytes, write_new
from orchestrator.model.run_json import GitFacts, NotKept
from orchestrator.runs.git import Revision, contents_at, diff_of, is_ignored, revision_of

FOLDER = "code"
_TREE = "tree.json"
_FILES = "files.tar.gz"
_DIFF = "changes.diff"
PROFILE = "profile.yaml"

MOST_OF_ONE = 8 << 20
MOST_OF_ALL = 32 << 20
"""Bytes of one file, and of all files of a run, that are kept."""
_MOST_DIFF = 1 << 20
_NAMED = 1000

_SECRETS = (
    ".env", ".env.*", "*.env", ".netrc", "_netrc", ".pypirc", ".npmrc", ".pgpass", ".git-credentials",
    ".htpasswd", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.kdbx", "id_rsa*", "id_dsa*", "id_ecdsa*",
    "id_ed25519*", "credentials", "credentials.*", "*credentials*.json", "client_secret*.json",
    "service-account*.json", "service_account*.json", "secret.*", "secrets.*", "kaggle.json", "*.tfvars",
)  # fmt: skip
_SECRET_FOLDERS = (".aws", ".ssh", ".gnupg", ".azure", ".kube", "secrets", ".secrets")
_EXAMPLES = (".example", ".sample", ".template", ".dist")


class Why(StrEnum):
    """Why a file of the code is not kept."""

    IGNORED = "ignored"
    """Git ignores it."""
    SECRET = "secret"
    """Its name suggests that it holds a secret."""
    TOO_LARGE = "too_large"
    CHANGED = "changed"
    """It changed while it was sent, or could not be read."""


@dataclass(frozen=True)
class Tree:
    """The paths of a run's code."""

    entries: Annotated[tuple[Entry, ...], Most(1_000_000)]


def may_be_secret(path: str) -> bool:
    """Return whether a file may hold secrets, judged by its name."""
    *folders, name = path.lower().split("/")
    if any(folder in _SECRET_FOLDERS for folder in folders):
        return True
    return not name.endswith(_EXAMPLES) and any(fnmatch.fnmatchcase(name, form) for form in _SECRETS)


def keep_code(run: Path, root: Path, code: Manifest) -> CodeFacts:
    """Keep the code below `root` in the run's folder. Return the facts of the code for the run's record."""
    place = run / FOLDER
    files = {entry.path: entry for entry in code.entries if entry.kind == "file"}
    revision = revision_of(root, {entry.path for entry in code.entries if entry.kind != "dir"})
    wanted = [entry for path, entry in files.items() if revision is None or path in revision.changed]
    kept, lacking = _chosen(root, wanted, revision)
    atomic_write(place / _TREE, json.dumps(asdict(Tree(code.entries)), separators=(",", ":")).encode())
    if kept:
        atomic_write(place / _FILES, _packed(kept))
    if revision is not None:
        _keep_diff(place, root, revision, set(kept), files)
    facts: CodeFacts = {"digest": code.digest, "files": len(code.entries)}
    if revision is not None:
        facts["git"] = _git_facts(revision, files)
    if lacking:
        facts["not_kept"] = lacking[:_NAMED]
    return facts


def _git_facts(revision: Revision, files: dict[str, Entry]) -> GitFacts:
    facts: GitFacts = {"revision": revision.id, "dirty": revision.dirty}
    if revision.branch is not None:
        facts["branch"] = revision.branch
    if revision.dirty:
        told = hashlib.sha256()
        for path in sorted(revision.changed):
            digest = files[path].digest if path in files else "-"
            told.update(f"{path}\0{digest}\0".encode("utf-8", "surrogateescape"))
        facts["changed"], facts["changes"] = len(revision.changed), told.hexdigest()
    return facts


def _chosen(
    root: Path, wanted: Sequence[Entry], revision: Revision | None
) -> tuple[dict[str, bytes], list[NotKept]]:
    """Return the contents to keep, small files first, and the files that are not kept."""
    kept: dict[str, bytes] = {}
    lacking: list[NotKept] = []
    left = MOST_OF_ALL
    for entry in sorted(wanted, key=lambda each: (each.size, each.path)):
        why = _refused(entry, revision, left)
        content = None if why else _content(root / entry.path, entry.digest)
        if content is None:
            lacking.append({"path": entry.path, "why": why or Why.CHANGED})
            continue
        kept[entry.path] = content
        left -= len(content)
    return kept, lacking


def _refused(entry: Entry, revision: Revision | None, left: int) -> Why | None:
    if revision is not None and entry.path in revision.ignored:
        return Why.IGNORED
    if may_be_secret(entry.path):
        return Why.SECRET
    return Why.TOO_LARGE if entry.size > min(left, MOST_OF_ONE) else None


def _content(path: Path, digest: str) -> bytes | None:
    """Return the content of a regular file that has this digest; None if it has another one or cannot be
    read.
    """
    with suppress(OSError, ValueError):
        content = regular_bytes(path, MOST_OF_ONE)
        return content if hashlib.sha256(content).hexdigest() == digest else None
    return None


def _packed(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
        for path, content in sorted(files.items()):
            member = tarfile.TarInfo(path)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def _keep_diff(place: Path, root: Path, revision: Revision, kept: set[str], files: dict[str, Entry]) -> None:
    """Write what `git diff` shows of the kept changes and of files that were removed."""
    shown = [path for path in revision.changed if path in kept or path not in files]
    text = diff_of(root, revision.id, [path for path in shown if not may_be_secret(path)])
    if 0 < len(text) <= _MOST_DIFF:
        atomic_write(place / _DIFF, text)


def keep_profile(run: Path, profile: Path, text: bytes) -> bool:
    """Keep the profile's text, unless git ignores its file, or its name suggests secrets. Return whether it
    was kept.
    """
    if may_be_secret(profile.name) or is_ignored(profile):
        return False
    atomic_write(run / FOLDER / PROFILE, text, 0o600)
    return True


# ---------------------------------------------------------------- laid out again


def kept_tree(run: Path) -> tuple[Entry, ...] | None:
    """Return the paths of a run's code; None if they were not kept, or the list is damaged."""
    try:
        return decoded(Tree, regular_bytes(run / FOLDER / _TREE, LONG), most=LONG).entries
    except (OSError, Malformed):
        return None


def changed_code(one: Path, other: Path) -> tuple[str, ...]:
    """Return the sorted paths in which the code of two runs differs; none if it was not kept of both."""
    first, second = kept_tree(one), kept_tree(other)
    if first is None or second is None:
        return ()
    left, right = ({entry.path: entry for entry in tree} for tree in (first, second))
    return tuple(sorted(path for path in {*left, *right} if left.get(path) != right.get(path)))


def kept_profile(run: Path) -> bytes | None:
    with suppress(OSError, ValueError):
        return regular_bytes(run / FOLDER / PROFILE, LONG)
    return None


def rebuild(run: Path, entries: Sequence[Entry], root: Path, revision: str, target: Path) -> tuple[str, ...]:
    """Write a run's code to the new folder `target`. Return the paths whose content was not found.

    Each file is taken from the project at `root`, the stored files, or git's `revision`, wherever the content
    has the recorded digest. `root` is only read. Links are made last, so that nothing is written through one.
    """
    missing = [entry.path for entry in entries if _leads_out(entry.path)]
    packed = _unpacked(run / FOLDER / _FILES)
    good = [entry for entry in entries if not _leads_out(entry.path)]
    target.mkdir(parents=True, mode=0o700)
    for entry in good:
        place = target / entry.path
        if entry.kind == "dir":
            place.mkdir(parents=True, exist_ok=True)
        elif entry.kind == "file":
            content = _found(root, entry, packed.get(entry.path), revision)
            if content is None:
                missing.append(entry.path)
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            write_new(place, content)
            place.chmod(entry.mode & 0o777)
    links = [entry for entry in good if entry.kind == "link"]
    missing += [entry.path for entry in links if not _linked(target / entry.path, entry.target)]
    for entry in reversed(good):
        if entry.kind == "dir" and entry.mode:
            (target / entry.path).chmod(entry.mode & 0o777)
    return tuple(missing)


def _linked(place: Path, target: str) -> bool:
    with suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)
        return True
    return False


def _leads_out(path: str) -> bool:
    return "\0" in path or any(part in ("", ".", "..") for part in path.split("/"))


def _found(root: Path, entry: Entry, kept: bytes | None, revision: str) -> bytes | None:
    def candidates() -> Iterator[bytes]:
        with suppress(OSError, ValueError):
            yield regular_bytes(root / entry.path, max(entry.size, 1))
        if kept is not None:
            yield kept
        yield from contents_at(root, revision, entry.path)

    return next((each for each in candidates() if hashlib.sha256(each).hexdigest() == entry.digest), None)


def _unpacked(archive: Path) -> dict[str, bytes]:
    """Return the files in an archive; from a damaged one, those that can be read. Nothing is extracted to
    the disk.
    """
    found: dict[str, bytes] = {}
    left = MOST_OF_ALL
    with suppress(OSError, ValueError, EOFError, tarfile.TarError, zlib.error):
        content = regular_bytes(archive, 2 * MOST_OF_ALL)
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as opened:
            for member in opened:
                left -= member.size
                if left < 0:
                    break
                file = opened.extractfile(member) if member.isreg() else None
                if file is not None:
                    found[member.name] = file.read()
    return found
