"""What several confirmations in one process can share: imported frameworks, and runs that were repeated."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from orchestrator.api.confirm_runs import Runs
from orchestrator.api.confirm_zygote import Zygotes


class Workshop:
    """Zygotes, and the repeated runs of each recording. A context manager; when it is left, all of it goes.

    `zygotes` (each holds a framework in memory) are kept at once. Recordings, projects and data must stay
    as they are between two confirmations that share one.
    """

    def __init__(self, zygotes: int = 2) -> None:
        self._zygotes = Zygotes(zygotes)
        self._runs: dict[str, Runs] = {}

    def __enter__(self) -> Workshop:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def runs(self, key: str, make: Callable[[Zygotes], Runs]) -> Runs:
        """The repeated runs known by `key`, made by `make` the first time."""
        if key not in self._runs:
            self._runs[key] = make(self._zygotes)
        return self._runs[key]

    def close(self) -> None:
        """End the zygotes and remove what repeated runs left."""
        for runs in self._runs.values():
            runs.close()
        self._runs.clear()
        self._zygotes.close()
