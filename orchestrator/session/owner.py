"""The owner of a machine, and the folders that hold a user's leases.

The owner is the account of the cloud credentials. Without credentials it is a random id in the user's state
folder. It does not depend on names of computers and folders.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shlex
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from orchestrator.errors import LocalError
from orchestrator.model import LABEL_OWNER, Machine, Provider
from orchestrator.providers.local.store import state_home

_ID = re.compile(r"[0-9a-f]{32}")


def owner(provider: Provider) -> str:
    """The owner label for a new machine. Raises LocalError if the id cannot be stored."""
    principal = provider.principal()
    return _label(principal) if principal else _own_id()


def is_mine(provider: Provider, machine: Machine) -> bool:
    """Whether this user created the machine, under either identity."""
    principal = provider.principal()
    mine = {_label(principal)} if principal else set()
    with suppress(LocalError):
        mine.add(_own_id())
    return machine.labels.get(LABEL_OWNER) in mine


def _label(principal: str) -> str:
    """A readable and unique label, in the characters that every cloud accepts."""
    name = re.sub(r"[^a-z0-9]+", "-", principal.rpartition(":")[2].lower()).strip("-")
    return f"{name[:40].strip('-')}-{hashlib.sha256(principal.encode()).hexdigest()[:12]}"


def _own_id() -> str:
    """32 hex digits, generated once per user."""
    path = _home() / "owner"
    for _ in range(2):
        try:
            found = _read(path)
        except FileNotFoundError:
            found = ""
        except OSError as error:
            raise _unkept(path, error) from error
        if _ID.fullmatch(found):
            return found
        _make(path)
    raise LocalError(
        f"{path} should contain the id that marks your machines, but contains something else.",
        next_command=f"rm {shlex.quote(str(path))}    # a new id is generated",
    )


def _make(path: Path) -> None:
    """Write the id atomically; of two concurrent writers the first one wins."""
    part = path.with_name(f".owner-{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        part.write_text(secrets.token_hex(16) + "\n")
        try:
            os.link(part, path)
        except FileExistsError:
            if not _ID.fullmatch(_read(path)):  # truncated by a full disk
                part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise _unkept(path, error) from error


def _read(path: Path) -> str:
    return path.read_bytes().decode("ascii", "replace").strip()


def _unkept(path: Path, error: OSError) -> LocalError:
    return LocalError(
        f"Your machines are marked with an id in {path}, which cannot be written: {error.strerror}.",
        exists="This command created nothing.",
        next_command="export ORCH_STATE_HOME=DIR    # a writable folder",
    )


def _home() -> Path:
    return state_home(os.environ)


# ---------------------------------------------------------------- where leases lie


def note_folder(lease: str, folder: Path) -> None:
    """Note the folder of a lease's ledger for `down --all` in other folders. A failure is ignored."""
    with suppress(OSError):
        path = _home() / "leases" / lease
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.write_bytes(os.fsencode(folder))
    with suppress(OSError):
        known = _home() / "projects" / hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
        known.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        known.write_bytes(os.fsencode(folder))


def forget_folder(lease: str) -> None:
    with suppress(OSError):
        (_home() / "leases" / lease).unlink(missing_ok=True)


def noted_folders() -> Iterator[Path]:
    """Every folder that may hold open leases of this user. Damaged entries are skipped."""
    yield from _noted("leases")


def known_projects() -> Iterator[Path]:
    """Every project in which this user leased something; their ledgers hold its costs."""
    yield from _noted("projects")


def _noted(kind: str) -> Iterator[Path]:
    found: dict[Path, None] = {}
    with suppress(OSError):
        for path in sorted((_home() / kind).iterdir()):
            note = path.read_bytes()
            if note.startswith(b"/") and b"\0" not in note:
                found[Path(os.fsdecode(note))] = None
    yield from found
