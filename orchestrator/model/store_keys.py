"""Names of objects in a store: which ones are allowed, and where each part of a run is stored.

Anybody who can write to the bucket can add keys to its listing, so keys are checked before they are used.
"""

from __future__ import annotations

import re
import unicodedata

from orchestrator.errors import StorageError, StorageFault

LONGEST = 1024
"""Most bytes of a whole object name, including the prefix: the limit of S3 and of Cloud Storage."""

RESERVED = ".orch-store"
"""No key may begin with this part: a file store keeps its own files there."""

_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def why_not(key: str) -> str | None:
    """Return why no store may hold an object of this key, as the end of a sentence; None if it may."""
    try:
        length = len(key.encode())
    except UnicodeEncodeError:
        return "is not valid Unicode"
    if not key:
        return "is empty"
    if length > LONGEST:
        return f"has {length} bytes, more than {LONGEST}"
    if any(unicodedata.category(letter) == "Cc" for letter in key):
        return "has a control character"
    parts = key.split("/")
    if "" in parts:
        return "is absolute" if key.startswith("/") else "has an empty part"
    if ".." in parts or "." in parts:
        return "has a part . or .."
    if parts[0] == RESERVED:
        return f"begins with {RESERVED}"
    return None


def check_key(key: str) -> str:
    """Return the key if a store may hold it. Raise StorageError if not."""
    if why := why_not(key):
        raise StorageError(StorageFault.KEY, f"{shown(key)} is not a valid object name: it {why}.")
    return key


def check_prefix(prefix: str) -> str:
    """Return the prefix if valid keys can begin with it. Raise StorageError if not."""
    if prefix:
        check_key(f"{prefix}x")
    return prefix


def shown(key: str) -> str:
    """Return any key in a form that fits into one line of a message."""
    text = ascii(key)
    return text if len(text) <= 120 else f"{text[:117]}…"


def blob(sha256: str) -> str:
    """Return the key of content that is addressed by its hash."""
    if not _SHA256.fullmatch(sha256):
        raise StorageError(StorageFault.KEY, f"{shown(sha256)} is not a SHA-256.")
    return f"blobs/sha256/{sha256[:2]}/{sha256}"


def run(run_id: str) -> str:
    """Return the folder of a run. Like all folders here, it has no slash at its end."""
    return f"runs/{_named(run_id)}"


def attempt(run_id: str, number: int) -> str:
    """Return the folder of one attempt of a run; attempts count from 1."""
    return f"{run(run_id)}/attempts/{_counted(number)}"


def checkpoint(run_id: str, number: int, sequence: int) -> str:
    """Return the folder of one snapshot of an attempt. Its manifest is written last."""
    return f"{attempt(run_id, number)}/checkpoints/{_counted(sequence)}"


def manifest(run_id: str, number: int, sequence: int) -> str:
    return f"{checkpoint(run_id, number, sequence)}/manifest.json"


def outputs(run_id: str, number: int) -> str:
    """Return the key of the list of an attempt's outputs. The list is written after all of them."""
    return f"{attempt(run_id, number)}/outputs.json"


def record(run_id: str) -> str:
    return f"{run(run_id)}/run.json"


def supervisor(run_id: str) -> str:
    """Return the key of the object that names the supervisor of the run."""
    return f"{run(run_id)}/supervisor.json"


def inputs(run_id: str) -> str:
    """Return the key of the object with what another computer needs to continue the run."""
    return f"{run(run_id)}/inputs.json"


def model(name: str) -> str:
    """Return the key of the history of a model's promotions."""
    return f"models/{_named(name)}.json"


def ledger(project: str, lease: str) -> str:
    """Return the folder of a lease's ledger."""
    return f"ledgers/{_named(project)}/{_named(lease)}"


def _named(name: str) -> str:
    if not _PART.fullmatch(name):
        raise StorageError(StorageFault.KEY, f"{shown(name)} is not valid as a part of a key.")
    return name


def _counted(number: int) -> int:
    if not 0 <= number < 10**9:
        raise StorageError(StorageFault.KEY, f"{number} is not valid as a number in a key.")
    return number
