"""A run's record, made of what the ledger knows; and the end of a run whose machine is gone with it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from orchestrator.api import attempts, collect
from orchestrator.api.awaiting import MachineGone
from orchestrator.api.folder import Folder
from orchestrator.api.held import serving
from orchestrator.api.verdict import judged
from orchestrator.errors import ResultsLost
from orchestrator.ledger import Lease, LeasedRun, Ledger
from orchestrator.model import Ending, Exit, MachineState, Provider, RunRecord
from orchestrator.providers import open_provider

_NAMED = 5
_UNEXPLAINED = "Its machine is gone: the deadline came, it was powered off, or its provider ended it."


def record_of(place: Folder, lease: Lease, run_id: str, draft: Mapping[str, Any], **facts: Any) -> RunRecord:
    """The record of a run of `lease`; `facts` are those that only its end tells, `exit` among them."""
    run = lease.runs.get(run_id)
    attempt = draft.get("attempt", {"number": 1})
    begun = run.started_at if run and run.attempt == attempt["number"] else None
    record = RunRecord(
        run_id=run_id,
        path=str(place.run(run_id)),
        command=draft.get("command"),
        code=draft.get("code"),
        stack=draft["stack"],
        data=draft["data"],
        parity=draft["parity"],
        timings=draft["timings"],
        cost=cost_of(lease, begun, draft["timings"], time.time()),
        **{"machine": lease.machine, **facts},
    )
    return replace(record, attempts=attempts.told(place, {**attempt, "started_at": begun}, record))


def cost_of(lease: Lease, begun: float | None, timings: Mapping[str, float], now: float) -> dict[str, float]:
    """What the run cost, and apart from it what its lease cost until now: install, sync, waiting, other runs.

    The run's own time is the job's, as its machine measured it; where nobody saw the job end, the time from
    its start (`begun`) until now or the machine's deadline. US dollars, seconds.
    """
    seconds = timings.get("train_s")
    if seconds is None:
        until = min(now, lease.deadline or now)
        seconds = 0.0 if begun is None else max(0.0, until - begun)
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


def require_gone(provider: Provider, lease: Lease) -> None:
    """ResultsLost where the machine is only stopped: its disk may have what was not pulled, and costs."""
    machine = serving(provider, lease)
    if machine is None or machine.state is not MachineState.STOPPED or not lease.uncollected:
        return
    ids = ", ".join(run.run_id for run in lease.uncollected)
    raise ResultsLost(
        f"{machine.id} is stopped, and results of {ids} were not pulled from it.",
        exists=str(machine.detail.get("stopped") or "Its disk exists, with those results, and may cost."),
        next_command="orch down --discard    # they are lost then; or start it in the cloud's console and: "
        f"orch pull {lease.uncollected[0].run_id}",
    )


def lost_run(record: RunRecord) -> dict[str, str]:
    """What `down` tells of a run that was settled."""
    ended = record.exit
    return {"run_id": record.run_id, "reason": str(ended["reason"]), "detail": str(ended.get("detail", ""))}


def few(paths: Sequence[str]) -> str:
    """The first of some paths, and how many more there are."""
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    return ", ".join(paths[:_NAMED]) + more


@contextmanager
def settling(place: Folder, ledger: Ledger, run_id: str) -> Iterator[None]:
    """Where the machine turns out to be gone: settle its runs, and tell the end of `run_id` as its own."""
    try:
        yield
    except MachineGone as gone:
        require_gone(open_provider(ledger.lease().profile["cloud"]), ledger.lease())
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
