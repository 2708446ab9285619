"""Download what a run writes for TensorBoard while it trains, to `runs/<id>/events/`, under the same paths as
on the machine. Downloaded files stay if the machine is lost. Files that are later fetched among the outputs
are removed here.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from orchestrator import jobs
from orchestrator.errors import LocalError
from orchestrator.model import Agent, Host
from orchestrator.model.answers import malformed
from orchestrator.runtime.agent.events import MARK
from orchestrator.runtime.transfer.confined import Confined

if TYPE_CHECKING:
    from orchestrator.session.session import Session

FOLDER = "events"
MOST = 1 << 30
"""Most bytes that are kept of one run."""

_WRITING = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def bring(host: Host, agent: Agent, run_id: str, run: Path) -> int:
    """Download what the run has written since the last call. Return the number of bytes. Safe to repeat and
    to interrupt.

    Raise HostError, and LocalError if it cannot be written here.
    """
    came = 0
    while sum((have := _have(run / FOLDER)).values()) < MOST:
        found = jobs.events(host, agent, run_id, have)
        fresh = sum(_put(host, run / FOLDER, piece) for piece in found.files)
        came += fresh
        if not (found.more and fresh):
            break
    return came


class Written:
    """Downloads what a run writes for TensorBoard while it continues."""

    what = "The TensorBoard files"

    def __init__(self, session: Session, run_id: str) -> None:
        self._session = session
        self._run_id = run_id

    def poll(self, host: Host) -> None:
        """Download what is new. Raises HostError and LocalError."""
        bring(host, self._session.agent, self._run_id, self._session.project.run(self._run_id))


def size_in(folder: Path) -> tuple[int, int]:
    """Return how many files for TensorBoard are below `folder`, and their bytes."""
    found = _have(folder)
    return len(found), sum(found.values())


def forget(run: Path, outputs: Path) -> None:
    """Remove the downloaded files that were also fetched among the run's `outputs` with at least the same
    size.
    """
    home = _have(outputs)
    for path, size in _have(run / FOLDER).items():
        if home.get(path, -1) >= size:
            _remove(run / FOLDER, path)
    with contextlib.suppress(OSError):
        (run / FOLDER).rmdir()


def _remove(folder: Path, path: str) -> None:
    with contextlib.suppress(OSError), Confined(str(folder)) as inside:
        inside.remove(path)
        for above in PurePosixPath(path).parents[:-1]:
            inside.forget()
            inside.remove(str(above))


def _have(folder: Path) -> dict[str, int]:
    """Return the size of every file for TensorBoard below `folder`, by its path there."""
    return {str(path.relative_to(folder)): path.lstat().st_size for path in _regular(folder)}


def _regular(folder: Path) -> Iterator[Path]:
    for above, _, names in os.walk(folder):
        for name in names:
            path = Path(above) / name
            if MARK in name and stat.S_ISREG(path.lstat().st_mode):
                yield path


def _put(host: Host, folder: Path, piece: jobs.EventsPiece) -> int:
    """Write a piece to its place below `folder`, through no link. Return its number of bytes."""
    parts = piece.path.split("/")
    if not piece.path.isprintable() or MARK not in parts[-1] or {"", ".", ".."} & set(parts):
        raise malformed(host.name, "events", f"{piece.path!r} is not the path of a TensorBoard file")
    try:
        content = base64.b64decode(piece.content, validate=True)
    except binascii.Error:
        raise malformed(host.name, "events", f"what it sent of {piece.path!r} is not base64") from None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with Confined(str(folder)) as inside:
            for above in reversed(PurePosixPath(piece.path).parents[:-1]):
                inside.make_folder(str(above), 0o755)
            _write(inside, piece, content)
    except OSError as error:
        raise LocalError(f"{folder / piece.path} cannot be written: {error.strerror or error}.") from error
    return len(content)


def _write(inside: Confined, piece: jobs.EventsPiece, content: bytes) -> None:
    """Write a piece. Another process may write the same bytes to the same place at once."""
    above, name = inside.at(piece.path)
    descriptor = os.open(name, _WRITING, 0o644, dir_fd=above)
    with os.fdopen(descriptor, "wb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError("it is not a regular file")
        if found.st_size < piece.at:  # it was truncated here meanwhile: a gap would be read as events
            return
        if not piece.at and found.st_size:
            file.truncate(0)
        file.seek(piece.at)
        file.write(content)
