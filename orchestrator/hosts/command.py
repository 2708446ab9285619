"""Commands as argument lists, and the only place that converts a list to shell text."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

STOP_GRACE = 2.0
"""Seconds between SIGTERM and SIGKILL for a command that ran out of time."""

# The login shell's start-up files may print anything before our command begins: output counts from
# the mark on. `$$` stays the command's own pid, because exec keeps the process; sshd
# starts every session in its own process group, so it is the group's number too.
_BEGIN = r"""printf '%s %s\n' "$0" "$$"; printf '%s\n' "$0" >&2; exec "$@" """

STOP_GROUP = (
    'kill -s TERM -- "-$1" || exit; n=0; '
    'while [ "$n" -lt 20 ] && kill -s 0 -- "-$1"; do sleep 0.1; n=$((n + 1)); done; '
    'kill -s KILL -- "-$1"'
)
"""Shell text that ends process group $1: by SIGTERM, then by SIGKILL."""


def checked(argv: Sequence[str]) -> tuple[str, ...]:
    """Return `argv` as a tuple. Raises ValueError if it is empty or has a NUL, which no command accepts."""
    if not argv or not argv[0]:
        raise ValueError("A command needs a program to run.")
    if any("\0" in word for word in argv):
        raise ValueError(f"A command cannot hold a NUL character: {shown(argv)}")
    return tuple(argv)


def remote_text(argv: Sequence[str], mark: str) -> bytes:
    """Return shell text that prints `mark` on both outputs and then runs `argv`, for any POSIX shell."""
    text = "exec " + shlex.join(["/bin/sh", "-c", _BEGIN, mark, *argv])
    return text.encode("utf-8", "surrogateescape")


def shown(argv: Sequence[str], limit: int = 120) -> str:
    """Format `argv` for a message: one line, shortened to `limit` characters."""
    text = shlex.join(argv).replace("\n", "\\n").encode("utf-8", "replace").decode()
    return text if len(text) <= limit else text[: limit - 1] + "…"
