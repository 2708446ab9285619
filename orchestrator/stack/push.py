"""Send wheels from this computer's cache to a machine that has no network, and verify each there."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

from orchestrator.errors import StackError
from orchestrator.model import Agent, Host, Progress
from orchestrator.model.counted import counted
from orchestrator.stack.bootstrap import sh
from orchestrator.stack.download import cached, collect
from orchestrator.stack.pack import Member, send
from orchestrator.stack.wheels import Wheel

_SPARE = 64 << 20
_BYTECODE = 1.25
"""Size of an installed tree with bytecode, relative to one without (TensorFlow 2.21: 1.10)."""


def push_wheels(
    host: Host,
    agent: Agent,
    wheels: Sequence[Wheel],
    cache: Path,
    progress: Progress,
    *,
    index_lines: tuple[str, ...] = (),
) -> int:
    """Make sure that every wheel is in <base>/wheels/<sha256>/ on the machine. Return the number of bytes
    sent.

    Raise StackError before anything is sent if the machine's disk is too small.
    """
    absent = set(_absent(host, agent, wheels))
    missing = [wheel for wheel in wheels if wheel.sha256 in absent]
    paths = collect(missing, cache, progress, index_lines=index_lines)
    check_disk(host, agent.base, sum(map(_room, paths)))
    if not missing:
        return 0
    members = [Member(f"{w.sha256}/{w.filename}", cached(w, cache)) for w in missing]
    folder = f"{agent.base}/wheels/.part"
    sent = send(host, members, folder, squeeze=False, label=counted(len(missing), "wheel"), progress=progress)
    broken = _absent(host, agent, missing)
    if broken:
        names = ", ".join(wheel.filename for wheel in missing if wheel.sha256 in broken)
        raise StackError(f"These wheels were changed on their way to the machine: {names}.")
    return sent


def _absent(host: Host, agent: Agent, wheels: Sequence[Wheel]) -> list[str]:
    wanted = "".join(f"{wheel.sha256} {wheel.filename}\n" for wheel in wheels)
    return sh(host, "store", agent.base, stdin=wanted.encode()).split()


def _room(path: Path) -> int:
    """Return the bytes that a wheel needs on the machine's disk: itself, unpacked, and its bytecode."""
    with zipfile.ZipFile(path) as archive:
        unpacked = sum(entry.file_size for entry in archive.infolist())
    return path.stat().st_size + int(unpacked * _BYTECODE)


def check_disk(host: Host, folder: str, needed: int) -> None:
    """Raise StackError if `folder`'s file system there has less than `needed` bytes free."""
    free = free_bytes(host, folder)
    if free is not None and free < needed + _SPARE:
        raise StackError(
            f"The machine's disk is too small for the stack: it needs {_mib(needed + _SPARE)}, "
            f"and {folder} has {_mib(free)} free.",
            exists=f"{host.name} is still running; nothing was sent.",
            next_command="give the profile a larger resources.disk, then orch down && orch up",
        )


def free_bytes(host: Host, folder: str) -> int | None:
    """Return the free bytes that df reports; None if it reports none."""
    done = host.run(("df", "-Pk", folder), timeout=30)
    try:
        return int(done.stdout.decode().splitlines()[-1].split()[3]) * 1024
    except (IndexError, ValueError):
        return None


def _mib(count: int) -> str:
    return f"{count / (1 << 20):,.0f} MiB"
