"""Limits on a command's output and on files from the other side, the same for every kind of host."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from orchestrator.errors import FileRefused, LocalError, MalformedAnswer
from orchestrator.hosts import disk
from orchestrator.hosts.command import shown
from orchestrator.model.plain import plain

SPARE = 64 << 20
"""Bytes that stay free on this computer's disk."""


def too_much(argv: Sequence[str], where: str, most: int) -> MalformedAnswer:
    """Return the error for a command that prints more than its limit."""
    return MalformedAnswer(
        f"`{shown(argv)}` on {where} printed more than {most:,} bytes. It was stopped, and its output was "
        "not used.",
        exists=f"{where} may still be running and cost money.",
        next_command="orch status",
    )


def irregular(source: str, where: str) -> FileRefused:
    """Return the error for a link, device, pipe or folder in place of a file."""
    return FileRefused(
        f"{plain(source)} on {where} is not a regular file, so it was not downloaded.",
        exists=f"It is still on {where}.",
        next_command="orch status",
    )


def shrank(source: str, where: str, size: int, came: int) -> FileRefused:
    """Return the error for a file that became shorter while it was downloaded."""
    return FileRefused(
        f"{plain(source)} on {where} became shorter during the download: {came:,} of {size:,} bytes arrived. "
        "Existing files are unchanged.",
        exists=f"It is still on {where}.",
        next_command="orch pull",
    )


def admit(source: str, where: str, size: int, most: int, target: Path) -> None:
    """Check the size of a file before its first byte. Raises FileRefused if it exceeds `most` or the whole
    disk here, LocalError if it would fit with more free space.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    total, _, free = shutil.disk_usage(target.parent)
    if size > min(most, total):
        raise FileRefused(
            f"{plain(source)} on {where} has {size:,} bytes, more than the limit of {min(most, total):,} for "
            "downloads to this computer.",
            exists=f"It is still on {where}.",
            next_command="orch status",
        )
    if size > max(0, free - SPARE):
        raise LocalError(
            f"{plain(source)} on {where} has {disk.amount(size)}, and {disk.amount(SPARE)} must stay free: "
            f"{disk.shown(target.parent)}. It was not downloaded.",
            exists=f"It is still on {where}.",
            next_command=f"orch pull    # once there is room in {disk.mount_of(target.parent)}",
        )
