"""Names of the objects that a machine uploads, below the prefix of one attempt at a run."""

from __future__ import annotations

import os
from urllib.parse import quote

LARGEST = 5 << 30
"""Bytes of one object that a form may carry: the limit of S3."""
STATE = "state.json"
"""How the run stands after its end. It is written last: with it, all else is there."""
OUTPUTS = "outputs.json"
MANIFEST = "manifest.json"
SLOTS = ("slot-0", "slot-1")
"""Where copies of checkpoints lie by turns: a form cannot remove what is old, only take its place."""
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
