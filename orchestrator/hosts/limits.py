"""Limits on a command's output and on a file from the other side. The refusals are alike
for every kind of host."""

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
    """The error for a command that says more than it can have to say."""
    return MalformedAnswer(
        f"`{shown(argv)}` on {where} said more than {most:,} bytes. It was stopped, and nothing was used.",
        exists=f"{where} may still run, and cost.",
        next_command="orch status",
    )


def irregular(source: str, where: str) -> FileRefused:
    """The error for a link, a device, a pipe or a folder in the place of a file."""
    return FileRefused(
        f"{plain(source)} on {where} is no regular file, so it was not fetched.",
        exists=f"It still lies on {where}.",
        next_command="orch status",
    )


def shrank(source: str, where: str, size: int, came: int) -> FileRefused:
    """The error for a file that became shorter while it was fetched."""
    return FileRefused(
        f"{plain(source)} on {where} was announced with {size:,} bytes, and {came:,} came. "
        "What was here before stays.",
        exists=f"It still lies on {where}.",
        next_command="orch pull",
    )


def admit(source: str, where: str, size: int, most: int, target: Path) -> None:
    """Refuse a file before its first byte: FileRefused above `most` or more than the whole disk here holds,
    LocalError where it would fit once there is room."""
    target.parent.mkdir(parents=True, exist_ok=True)
    total, _, free = shutil.disk_usage(target.parent)
    if size > min(most, total):
        raise FileRefused(
            f"{plain(source)} on {where} has {size:,} bytes, more than the {min(most, total):,} that can be "
            "fetched here.",
            exists=f"It still lies on {where}.",
            next_command="orch status",
        )
    if size > max(0, free - SPARE):
        raise LocalError(
            f"{plain(source)} on {where} has {disk.amount(size)}, and {disk.amount(SPARE)} must stay free: "
            f"{disk.shown(target.parent)}. It was not fetched.",
            exists=f"It still lies on {where}.",
            next_command=f"orch pull    # once there is room in {disk.mount_of(target.parent)}",
        )
