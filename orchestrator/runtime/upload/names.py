"""Names of the objects that a machine uploads, below the prefix of one attempt at a run."""

from __future__ import annotations

import os
from urllib.parse import quote

LARGEST = 5 << 30
"""Maximum bytes of one object that a form can upload: the limit of S3."""
STATE = "state.json"
"""The final state of the run. It is written last: if it exists, everything else was uploaded."""
OUTPUTS = "outputs.json"
MANIFEST = "manifest.json"
SLOTS = ("slot-0", "slot-1")
"""Copies of checkpoints alternate between these: a form cannot delete old objects, only overwrite them."""
_SAFE = "/ =@+,()~"


def of_path(path: str) -> str:
    """Return a file's path as part of a key: characters that a key cannot contain are written as %XX."""
    return quote(os.fsencode(path), safe=_SAFE)


def slot(name: str) -> str:
    """Return the folder of one of the SLOTS."""
    return f"checkpoints/{name}"


def of_slot(name: str, number: int) -> str:
    """Return the name of file `number`, from 0, of the copy in a slot; names are reused, so they do not
    accumulate.
    """
    return f"{slot(name)}/{number:06d}"


def output(path: str) -> str:
    return f"outputs/{of_path(path)}"
