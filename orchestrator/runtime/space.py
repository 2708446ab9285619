"""A full disk of the machine, as the exit status of a verb and as the kind of a refusal."""

from __future__ import annotations

import errno
import os

STATUS = 28
"""The exit status of a verb that found no space on the machine's disk."""
KIND = "full"
"""The kind of a RunError for the same reason."""

_FULL = (errno.ENOSPC, errno.EDQUOT)


def is_full(error: BaseException) -> bool:
    """Whether an error says that the disk, or the user's share of it, has no space left."""
    if not isinstance(error, OSError):
        return False
    return error.errno in _FULL or (error.errno == errno.ENOENT and _is_without_temporary(error))


def _is_without_temporary(error: OSError) -> bool:
    """Whether no temporary folder was found because each that can be written is full: `tempfile` drops the
    reason.
    """
    folders = (os.environ.get("TMPDIR"), "/tmp", "/var/tmp")
    return error.filename is None and any(_has_no_room(folder) for folder in folders if folder)


def _has_no_room(folder: str) -> bool:
    import tempfile  # late: every verb of the machine imports this module

    try:
        descriptor, path = tempfile.mkstemp(prefix="orch-room-", dir=folder)
    except OSError as error:
        return error.errno in _FULL
    try:
        os.write(descriptor, b"room")
    except OSError as error:
        return error.errno in _FULL
    finally:
        os.close(descriptor)
        os.unlink(path)  # noqa: PTH108 # close to the kernel
    return False
