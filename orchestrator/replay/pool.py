"""What several confirmations in one process share: imported frameworks and repeated runs."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from orchestrator.replay.fork_server import ForkServers
from orchestrator.replay.replayer import Replayer


class ReplayPool:
    """Fork servers, and the repeated runs of each recording. Leaving this context manager ends them.

    At most `servers` fork servers are kept, each of which holds a framework in memory. Recordings, projects
    and data must not change between two confirmations that share a pool.
    """

    def __init__(self, servers: int = 2) -> None:
        self._servers = ForkServers(servers)
        self._runs: dict[str, Replayer] = {}

    def __enter__(self) -> ReplayPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def runs(self, key: str, make: Callable[[ForkServers], Replayer]) -> Replayer:
        """Return the repeated runs for `key`; `make` creates them the first time."""
        if key not in self._runs:
            self._runs[key] = make(self._servers)
        return self._runs[key]

    def close(self) -> None:
        """End the fork servers and remove the files of repeated runs."""
        for runs in self._runs.values():
            runs.close()
        self._runs.clear()
        self._servers.close()
