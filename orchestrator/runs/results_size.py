"""Name the free space that all results of a run need, if a download does not fit on this computer's disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from orchestrator import jobs
from orchestrator.errors import LocalError, OrchError
from orchestrator.hosts.disk import amount, free
from orchestrator.hosts.limits import SPARE
from orchestrator.model import Agent, Entry, Host


@contextmanager
def naming_total_size(host: Host, agent: Agent, run_id: str, folder: Path) -> Iterator[None]:
    """If the block raises LocalError for a full disk, add how many bytes all results of the run need.

    `folder`: where the outputs belong.
    """
    try:
        yield
    except LocalError as error:
        with suppress(OrchError):
            size = _to_come(jobs.left(host, agent, run_id).entries, folder)
            if free(folder) < size + SPARE:
                error.message += (
                    f" In all, {amount(size)} of results are still on the machine, so "
                    f"{amount(size + SPARE)} must be free."
                )
        raise


def _to_come(entries: Sequence[Entry], folder: Path) -> int:
    """Return the total bytes of the files that were not downloaded yet, by this or an interrupted call."""
    staged = folder.with_name(f"{folder.name}.part") / "files"
    return sum(
        each.size
        for each in entries
        if each.kind == "file"
        and not any(_is_here(place / each.path, each.size) for place in (folder, staged))
    )


def _is_here(path: Path, size: int) -> bool:
    try:
        return path.lstat().st_size == size
    except OSError:
        return False
