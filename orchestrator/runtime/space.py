"""A full disk of the machine, as the exit status of a verb and as the kind of a refusal."""

from __future__ import annotations

import errno

STATUS = 28
"""The exit status of a verb that found no space on the machine's disk."""
KIND = "full"
"""The kind of a RunError for the same reason."""


def is_full(error: BaseException) -> bool:
    """Whether an error says that the disk, or the user's share of it, has no space left."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
