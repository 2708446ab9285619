"""A run's record, made of what the ledger knows; and the end of a run whose machine is gone with it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from orchestrator.api import collect
from orchestrator.api.awaiting import MachineGone
from orchestrator.api.folder import Folder
from orchestrator.api.verdict import judged
from orchestrator.ledger import Lease, LeasedRun, Ledger
from orchestrator.model import Ending, Exit, RunRecord

_UNEXPLAINED = "Its machine is gone: the deadline came, it was powered off, or its provider ended it."


def record_of(place: Folder, lease: Lease, run_id: str, draft: Mapping[str, Any], **facts: Any) -> RunRecord:
    """The record of a run of `lease`; `facts` are those that only its end tells, `exit` among them."""
    return RunRecord(
        run_id=run_id,
        folder=place.run(run_id),
        stack=draft["stack"],
        data=draft["data"],
        parity=draft["parity"],
        timings=draft["timings"],
        cost=cost_of(lease, run_id, draft["timings"], time.time()),
        **{"machine": lease.machine, **facts},
    )


def cost_of(lease: Lease, run_id: str, timings: Mapping[str, float], now: float) -> dict[str, float]:
    """What the run cost, and apart from it what its lease cost until now: install, sync, waiting, other runs.

    The run's own time is the job's, as its machine measured it; where nobody saw the job end, the time from
    its start until now or the machine's deadline. US dollars, seconds.
    """
    seconds = timings.get("train_s")
    if seconds is None:
        run = lease.runs.get(run_id)
        until = min(now, lease.deadline or now)
        seconds = max(0.0, until - run.started_at) if run else 0.0
    usd = round(seconds / 3600 * lease.price, 6)
    return {
        "usd": usd,
        "seconds": round(seconds, 3),
        "price_usd_hour": lease.price,
        "run_usd": usd,
        "run_seconds": round(seconds, 3),
        "lease_usd": round(lease.cost(now), 6),
        "lease_seconds": round(lease.seconds(now), 3),
    }


def settle(place: Folder, ledger: Ledger, ending: Ending | None) -> tuple[RunRecord, ...]:
    """Record every run as lost whose results were on the lease's machine only. The machine must be gone.

    Such a run blocks nothing any more. Safe to repeat. Returns the records that were written.
    """
    lease = ledger.lease()
    return tuple(_settled(place, ledger, lease, run, ending) for run in lease.uncollected)


@contextmanager
def settling(place: Folder, ledger: Ledger, run_id: str) -> Iterator[None]:
    """Where the machine turns out to be gone: settle its runs, and tell the end of `run_id` as its own."""
    try:
        yield
    except MachineGone as gone:
        lost = {record.run_id: record for record in settle(place, ledger, gone.ending)}
        if run_id in lost:
            judged(lost[run_id], ledger.lease().profile["path"])
        raise


def _settled(place: Folder, ledger: Ledger, lease: Lease, run: LeasedRun, ending: Ending | None) -> RunRecord:
    exit_ = _end_of(run, ending)
    record = record_of(place, lease, run.run_id, run.draft, exit=collect.exit_json(exit_))
    collect.write(record)
    ledger.append("run.lost", run_id=run.run_id, reason=exit_.reason, detail=exit_.detail)
    return record


def _end_of(run: LeasedRun, ending: Ending | None) -> Exit:
    """A run that had ended is not lost, its results are."""
    why = ending.message if ending else _UNEXPLAINED
    if run.exit_reason == "preempted" or (run.exit_reason in (None, "lost") and ending and ending.preempted):
        return Exit(None, None, "preempted", why)
    if run.exit_reason in (None, "lost"):
        return Exit(None, None, "lost", why)
    return Exit(
        None,
        None,
        "results_lost",
        f"It had ended ({run.exit_reason}), and its results were not pulled. {why}",
    )
