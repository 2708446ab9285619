"""Runs that another computer of the team started, followed through the ledger and the profile's store.

A machine's key is on the computer that created it. From other computers its run is followed by what the
machine uploads to the store, and results that were pulled there are downloaded from the store.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from orchestrator.errors import UsageError
from orchestrator.leases.settle import collect_stored, settle
from orchestrator.ledger import Lease, LeasedRun, Ledger
from orchestrator.model import Progress, RunRecord
from orchestrator.model.outcomes import ExitReason
from orchestrator.model.progress import Output
from orchestrator.profile import Profile
from orchestrator.profile.values import is_bucket
from orchestrator.providers import open_provider
from orchestrator.runs import collect, logs, record_file
from orchestrator.runs.outcome import raise_for_outcome
from orchestrator.runs.stored import StoredRun
from orchestrator.session import team
from orchestrator.session.machines import serving
from orchestrator.session.project import Project
from orchestrator.session.reach import ending_of_machine, require_seen
from orchestrator.session.work_locks import run_lock
from orchestrator.storage import open_store

_POLL_S = 10.0
_PUT_S = 120.0
"""Seconds that a record may take to reach the store after its run was pulled elsewhere."""


def bring_record(project: Project, profile: Profile, run_id: str, tell: Progress) -> RunRecord | None:
    """Download the newest attempt that was pulled on another computer, so that a call for its id finds it.

    Returns None if there is none. Raises UsageError if it succeeded elsewhere and no store has its results:
    only the user can decide to train again.
    """
    found = _newest(project, run_id) if project.team else None
    if found is None or not found.collected or found.lost is not None:
        return None
    here, folder = record_file.read(project.run(run_id)), project.run(run_id)
    if here is not None and (not here.attempts or here.attempts[-1]["number"] >= found.attempt):
        return None
    url = profile.store or found.draft.store
    stored = StoredRun(open_store(url), run_id) if url else None
    if stored is not None and stored.attempt_of_record() == found.attempt:
        tell.say(f"{run_id} ended on another computer: its record and results come from {url}")
        project.ignore_runs()
        folder.mkdir(parents=True, exist_ok=True)
        return stored.fetch_results(folder)
    if found.exit_reason == ExitReason.COMPLETED and found.home not in ("", team.writer()):
        raise _is_home_elsewhere(found)
    return None


def _is_home_elsewhere(run: LeasedRun) -> UsageError:
    return UsageError(
        f"{run.run_id} has ended ({run.exit_reason}): its record and results are on the computer of "
        f"{run.home}, and no store has them.",
        exists="This call started nothing.",
        next_command="repeat the command there, or with another run id; with `store:` in the profile, "
        "results reach every computer",
    )


def _newest(project: Project, run_id: str) -> LeasedRun | None:
    having = [lease.runs[run_id] for lease in project.leases() if run_id in lease.runs]
    return max(having, key=lambda run: (run.attempt, run.started_at), default=None)


def is_out_of_reach(project: Project, lease: Lease) -> bool:
    """Whether only another computer of the team can log in to the lease's machine."""
    return lease.machine is not None and team.is_key_elsewhere(project.identity(lease.id), lease)


def end_out_of_reach(project: Project, lease: Lease, run_id: str, tell: Progress) -> None:
    """Delete a machine that another computer created for this run only and that holds no results: this
    computer cannot log in to it, and the call that created it has ended.
    """
    if lease.for_run != run_id or not is_out_of_reach(project, lease):
        return
    with run_lock(project, run_id, "run", tell):
        now = project.ledger(lease.id).lease()
        if now.open and not now.uncollected:
            tell.say(
                f"{(now.machine or {}).get('id')} was created on the computer of {now.owner} and has no "
                "run: deleting it"
            )
            from orchestrator.leases.down import down

            down(now.id, folder=project.root, progress=tell)


def followed(
    project: Project, lease: Lease, run_id: str, verb: str, output: Output | None, tell: Progress
) -> RunRecord | None:
    """Follow a run on a machine that this computer cannot log in to; returns its record once it has ended,
    and raises its failure.

    Returns None if this is not such a run, or if its machine does not upload to a store.
    """
    run = next((each for each in lease.uncollected if each.run_id == run_id and not each.found), None)
    if run is None or run.draft.store is None or not is_out_of_reach(project, lease):
        return None
    stored = StoredRun(open_store(run.draft.store), run_id)
    machine = str((lease.machine or {}).get("id"))
    tell.say(
        f"{run_id} is running on {machine}. Only {lease.owner} has the key of that machine. "
        f"It is followed by what {_who_uploads(run.draft.store)}"
    )
    following = _Following(project, project.ledger(lease.id), run, stored, verb, output, tell)
    return raise_for_outcome(following.to_the_end(), lease.profile["path"], up=lease.up_command)


def _who_uploads(store: str) -> str:
    if is_bucket(store):
        return f"the machine uploads to {store}, every 30 s"
    return (
        f"reaches {store}. No machine uploads there: a command that follows the run on the computer with the "
        "key does, and what it does not fetch is lost with the machine"
    )


@dataclass(frozen=True)
class _Following:
    """A run that is followed. `run`: as it was in `ledger` when following started."""

    project: Project
    ledger: Ledger
    run: LeasedRun
    stored: StoredRun
    verb: str
    output: Output | None
    tell: Progress

    def to_the_end(self) -> RunRecord:
        folder = self.project.run(self.run.run_id)
        folder.mkdir(parents=True, exist_ok=True)
        shown, ended_at = logs.before(folder), math.inf
        while time.monotonic() < ended_at + _PUT_S:
            ended = self.stored.ended(self.run.attempt) is not None or self._is_gone()
            if ended and (record := self._settled()):
                self._show(shown)
                return record
            ended_at = min(ended_at, time.monotonic()) if ended else math.inf
            self.stored.fetch_log(self.run.attempt, folder)
            shown = self._show(shown)
            time.sleep(_POLL_S)
        raise _is_home_elsewhere(self.ledger.lease().runs[self.run.run_id])

    def _is_gone(self) -> bool:
        lease = self.ledger.lease()
        provider = open_provider(str(lease.profile["cloud"]))
        require_seen(provider, lease)
        return not lease.open or serving(provider, lease) is None

    def _settled(self) -> RunRecord | None:
        """Return the run's result from the store, or from another computer; None while the run is active."""
        run_id = self.run.run_id
        with run_lock(self.project, run_id, self.verb, self.tell):
            lease = self.ledger.lease()
            now = lease.runs[run_id]
            if not now.collected and self.stored.ended(now.attempt) is not None:
                collect_stored(self.project, self.ledger, now, self.stored.store.url)
            elif not now.collected:
                provider = open_provider(str(lease.profile["cloud"]))
                settle(self.project, self.ledger, ending_of_machine(provider, lease))
            elif now.lost is None and self.stored.attempt_of_record() == now.attempt:
                return self.stored.fetch_results(self.project.run(run_id))
            return record_file.read(self.project.run(run_id))

    def _show(self, shown: int) -> int:
        """Pass the log from byte `shown` on to `output`; returns the log's new length in bytes."""
        log = self.project.run(self.run.run_id) / collect.LOG
        if self.output is None or not log.is_file():
            return shown
        return max(shown, logs.passed_on(log, shown, self.output))
