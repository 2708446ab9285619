"""Record the first steps of a profile's command on several machines at once, and fetch the recordings."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from orchestrator import jobs, sync
from orchestrator.errors import HostError, OrchError, UsageError
from orchestrator.jobs import PathTaken
from orchestrator.model import Agent, Host, Job
from orchestrator.model.outcomes import ExitReason
from orchestrator.profile import Profile

_LAST_OF_LOG = 1 << 16
_SOON_S = 0.05


@dataclass(frozen=True)
class Observed:
    """One process to record: `job` is started by `host`, on the side of `agent`."""

    host: Host
    agent: Agent
    job: Job


@dataclass(frozen=True)
class Ended:
    """How an observed process ended, and the last of its output."""

    reason: str
    output: bytes

    @property
    def is_recorded(self) -> bool:
        """Whether it trained all steps that were to be recorded, or ended by itself before."""
        return self.reason in (ExitReason.OBSERVED, ExitReason.COMPLETED)


def observed_job(
    profile: Profile, run_id: str, python: str, serves: str, env: Mapping[str, str] | None = None
) -> Job:
    """Return the job that records the profile's first steps and then ends. `serves`: the id of the user's run
    for which it is recorded. `env`: variables of this process alone, such as TF_CONFIG of a worker.
    """
    return Job(
        run_id=run_id,
        argv=profile.train.command,
        python=python,
        env={**profile.train.environment(), **(env or {})},
        observe_steps=profile.parity.steps,
        observe_light=profile.parity.light_steps,
        stop_after_observed=True,
        serves=serves,
    )


def run_observed(sides: Sequence[Observed], *, together: bool = False) -> list[Ended]:
    """Run all at once, to their ends; the results are in the order of `sides`.

    `together`: they are workers of one training, which wait for each other, so that a failure of one ends
    all. Raises PathTaken and KeyboardInterrupt after all were cancelled.
    """
    with ThreadPoolExecutor(max_workers=len(sides)) as pool:
        running = [pool.submit(_run, side) for side in sides]
        try:
            for each in as_completed(running):
                if not each.result().is_recorded and together:
                    _cancel(sides, running)
        except (KeyboardInterrupt, PathTaken):
            _cancel(sides, running)
            raise
        except OrchError:
            if together:
                _cancel(sides, running)
            raise
    return [each.result() for each in running]


def _cancel(sides: Sequence[Observed], running: Sequence[Future[Ended]]) -> None:
    """Cancel the active jobs. A machine that cannot be reached keeps its job until its own deadline."""
    for each, side in zip(running, sides, strict=True):
        with contextlib.suppress(HostError):
            while not each.done():
                try:
                    jobs.cancel(side.host, side.agent, side.job.run_id, grace=1.0)
                except UsageError:  # it has not begun yet
                    time.sleep(_SOON_S)


def _run(side: Observed) -> Ended:
    jobs.start(side.host, side.agent, side.job)
    log = bytearray()

    def keep(data: bytes) -> None:
        log.extend(data)
        del log[:-_LAST_OF_LOG]

    jobs.follow(side.host, side.agent, side.job.run_id, 0, keep)
    ended = jobs.state(side.host, side.agent, side.job.run_id).exit
    return Ended(ended.reason if ended else ExitReason.LOST, bytes(log))


def fetch_recording(side: Observed, target: Path) -> None:
    """Download the recording of one side into `target`/observe, replacing that of an earlier attempt."""
    shutil.rmtree(target, ignore_errors=True)
    source = f"{jobs.run_dir(side.agent, side.job.run_id)}/observe"
    entries = sync.far_scan(side.host, side.agent, source).entries
    sync.pull(side.host, side.agent, source, entries, target / "observe")
