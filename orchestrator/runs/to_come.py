"""How much of a run's results is still to come, for a download that does not fit on this computer's disk."""

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
def naming_all(host: Host, agent: Agent, run_id: str, folder: Path) -> Iterator[None]:
    """Add to a LocalError of the block, if the disk has too little room, what all results of the run need.

    `folder`: where the outputs belong.
    """
    try:
        yield
    except LocalError as error:
        with suppress(OrchError):
            size = _to_come(jobs.left(host, agent, run_id).entries, folder)
            if free(folder) < size + SPARE:
                error.message += (
                    f" In all, {amount(size)} of results are to come, so {amount(size + SPARE)} must be free."
                )
        raise


def _to_come(entries: Sequence[Entry], folder: Path) -> int:
    """Return the bytes of the files that are not here, nor among those that an earlier attempt fetched."""
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
