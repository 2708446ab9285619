"""Who a machine belongs to, and in which folder a lease of theirs lies.

The owner is the account of the cloud credentials. Where nobody logs in it is a random id in the user's
state folder. Either names one user, whatever their computers and folders are called.
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
    """The owner's label for a new machine. Raises LocalError where no id can be kept."""
    principal = provider.principal()
    return _label(principal) if principal else _own_id()


def is_mine(provider: Provider, machine: Machine) -> bool:
    """Whether this user made the machine, by either of their identities."""
    principal = provider.principal()
    mine = {_label(principal)} if principal else set()
    with suppress(LocalError):
        mine.add(_own_id())
    return machine.labels.get(LABEL_OWNER) in mine


def _label(principal: str) -> str:
    """Readable, unique, and in the alphabet that every cloud takes for a label."""
    name = re.sub(r"[^a-z0-9]+", "-", principal.rpartition(":")[2].lower()).strip("-")
    return f"{name[:40].strip('-')}-{hashlib.sha256(principal.encode()).hexdigest()[:12]}"


def _own_id() -> str:
    """32 hex digits, made once for this user."""
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
        f"{path} should hold the id by which orch knows your machines, and holds something else.",
        next_command=f"rm {shlex.quote(str(path))}    # a new id is made; end older machines by their lease",
    )


def _make(path: Path) -> None:
    """Whole at once, and the first of two that are made at once stays."""
    part = path.with_name(f".owner-{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        part.write_text(secrets.token_hex(16) + "\n")
        try:
            os.link(part, path)
        except FileExistsError:
            if not _ID.fullmatch(_read(path)):  # cut by a full disk
                part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise _unkept(path, error) from error


def _read(path: Path) -> str:
    return path.read_bytes().decode("ascii", "replace").strip()


def _unkept(path: Path, error: OSError) -> LocalError:
    return LocalError(
        f"Your machines are marked with an id in {path}, which cannot be kept there: {error.strerror}.",
        exists="Nothing was made by this command.",
        next_command="export ORCH_STATE_HOME=DIR    # a folder that can be written",
    )


def _home() -> Path:
    return state_home(os.environ)


# ---------------------------------------------------------------- where leases lie


def note_folder(lease: str, folder: Path) -> None:
    """Remember where a lease's ledger is, for `down --all` from elsewhere. Best effort."""
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
    """Every folder that may hold open leases of this user, each once. A damaged note is passed over."""
    yield from _noted("leases")


def known_projects() -> Iterator[Path]:
    """Every folder in which this user leased something, each once: their ledgers tell what it has cost."""
    yield from _noted("projects")


def _noted(kind: str) -> Iterator[Path]:
    found: dict[Path, None] = {}
    with suppress(OSError):
        for path in sorted((_home() / kind).iterdir()):
            note = path.read_bytes()
            if note.startswith(b"/") and b"\0" not in note:
                found[Path(os.fsdecode(note))] = None
    yield from found
