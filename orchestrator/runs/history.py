"""The runs of a project, from the records in `runs/` and from its ledgers. No machine is contacted.

Only the records of listed runs are read, so thousands of older runs cost a directory listing. With a team's
ledger, runs of its other computers are included.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from orchestrator.errors import UsageError
from orchestrator.ledger import Lease, LeasedRun
from orchestrator.model import RunRecord
from orchestrator.model.history import History, ModelCount, PastRun, Unreadable, Where
from orchestrator.runs import record_file
from orchestrator.session import team
from orchestrator.session.project import Project

LAST = 20
_METRICS = 6
_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_MADE = re.compile(r"(.+)-\d{8}-\d{6}-[0-9a-f]{4}")
"""A run id that orch generated: the profile's name and a time."""


@dataclass(frozen=True)
class _Leased:
    """A run id in the ledgers. `run`: its newest attempt, on `lease`. `usd`: the cost of all attempts."""

    lease: Lease
    run: LeasedRun
    usd: float | None
    ended_at: float | None
    first: float

    @property
    def profile(self) -> str:
        return str(self.lease.profile["name"])


@dataclass(frozen=True)
class _Candidate:
    """A run that may be listed, with its time as far as it is known without its record."""

    run_id: str
    at: float
    leased: _Leased | None
    recorded_at: float | None


def history(
    profile: str | Path | None = None, *, folder: Path | str | None = None, last: int | None = LAST
) -> History:
    """Return the newest `last` runs of this project (None: all); only those of `profile`, a name or a
    file.
    """
    project = Project.at(folder)
    leases = project.leases()
    damaged = [_unreadable(project, lease) for lease in leases if not lease.whole]
    candidates = _candidates(project, _leased(leases))
    wanted = _name(profile) if profile is not None else None
    found: list[PastRun] = []
    for one in candidates:
        if one.leased and one.leased.lease.rank:
            continue  # a part of the run of the first machine
        known = _profile(one)
        if wanted is not None and known and known != wanted:
            continue
        run, flaw = _past(project, one)
        if flaw:
            damaged.append(flaw)
        if run and wanted in (None, run.profile):
            found.append(run)
        if last is not None and len(found) > last:
            break
    if wanted is not None and not found:
        raise _no_runs_of(wanted, {name for one in candidates if (name := _profile(one))})
    shared = project.team
    return History(
        found[:last],
        damaged,
        last is not None and len(found) > last,
        shared.url if shared else "",
        next((lease.problem for lease in leases if lease.problem), None),
    )


# ---------------------------------------------------------------- which there are


def _leased(leases: Sequence[Lease]) -> dict[str, _Leased]:
    found: dict[str, _Leased] = {}
    for lease in leases:
        for run in lease.runs.values():
            before, ran = found.get(run.run_id), [one for one in lease.ran if one.run_id == run.run_id]
            one = _Leased(
                lease,
                run,
                sum(each.usd for each in ran) if ran else None,
                max((each.ended for each in ran), default=None),
                min((each.begun for each in ran), default=run.started_at),
            )
            found[run.run_id] = _together(before, one) if before else one
    return found


def _together(one: _Leased, other: _Leased) -> _Leased:
    """Merge a run that had attempts on two machines."""
    older, newer = sorted((one, other), key=lambda each: each.run.started_at)
    usd = [each for each in (older.usd, newer.usd) if each is not None]
    return replace(newer, usd=sum(usd) if usd else None, first=min(older.first, newer.first))


def _candidates(project: Project, leased: Mapping[str, _Leased]) -> list[_Candidate]:
    """Return the runs that may be listed, newest first."""
    recorded = dict(_recorded(project))
    found = [
        _Candidate(name, one.run.started_at if one else recorded[name], one, recorded.get(name))
        for name in {*leased, *recorded}
        for one in (leased.get(name),)
    ]
    return sorted(found, key=lambda one: (one.at, one.run_id), reverse=True)


def _recorded(project: Project) -> Iterator[tuple[str, float]]:
    """Yield the runs that have a record on this computer, and when it was written."""
    runs = project.root / "runs"
    with suppress(OSError):
        for name in os.listdir(runs):  # noqa: PTH208 (names are enough, of thousands)
            if _RUN.fullmatch(name):
                with suppress(OSError):
                    yield name, (runs / name / record_file.RECORD).stat().st_mtime


def _profile(one: _Candidate) -> str:
    """Return the profile's name; "" if only the record may have it."""
    if one.leased:
        return one.leased.profile
    made = _MADE.fullmatch(one.run_id)
    return made[1] if made else ""


def _name(profile: str | Path) -> str:
    """Return a profile's name; `profile` is the name or the file."""
    text = str(profile)
    if not isinstance(profile, Path) and not text.endswith((".yaml", ".yml")):
        return text
    from orchestrator.profile import load

    return load(Path(profile)).name


def _no_runs_of(wanted: str, names: set[str]) -> UsageError:
    near = get_close_matches(wanted, names, n=3, cutoff=0.5) or sorted(names)[:3]
    said = f" There are runs of: {', '.join(near)}." if near else ""
    return UsageError(f"This project has no runs of a profile {wanted!r}.{said}", next_command="orch runs")


def _unreadable(project: Project, lease: Lease) -> Unreadable:
    return Unreadable(
        str(project.ledger(lease.id).path),
        f"The ledger {lease.flaw}: runs of it may be missing from this list.",
    )


# ---------------------------------------------------------------- one run


def _past(project: Project, one: _Candidate) -> tuple[PastRun | None, Unreadable | None]:
    """Return the run, and the error if its record cannot be read."""
    record, flaw = None, None
    if one.recorded_at is not None:
        try:
            record = record_file.read(project.run(one.run_id))
        except UsageError as error:
            flaw = Unreadable(str(project.run(one.run_id) / record_file.RECORD), error.message)
    if record is None and one.leased is None:
        return None, flaw
    if record is None or (one.leased and _number(record) < one.leased.run.attempt):
        assert one.leased
        return _of_ledger(one.run_id, one.leased), flaw
    return _of_record(one, record), flaw


def _of_ledger(run_id: str, known: _Leased) -> PastRun:
    run, machine = known.run, known.lease.machine or {}
    where, place = _place(known)
    return PastRun(
        run_id,
        known.profile,
        where,
        place,
        lease=known.lease.id,
        owner=run.by or known.lease.owner,
        started_at=known.first,
        ended_at=known.ended_at,
        reason=run.exit_reason,
        active=_is_active(known),
        queued=run.waits,
        detail=run.gone or "",
        parity=_verdict(run.draft.parity),
        usd=known.usd,
        attempts=run.attempt,
        provider=str(known.lease.profile["cloud"]) or None,
        machine=machine.get("id"),
        instance_type=machine.get("instance_type"),
        code=run.draft.code,
    )


def _is_active(known: _Leased) -> bool:
    """Whether no end of the run or its machine is recorded, and the machine's deadline has not passed."""
    lease, held = known.lease, known.lease.holding
    if known.run.run_id not in lease.active or not lease.open or held is None or held.ended_at is not None:
        return False
    return lease.deadline is None or lease.now() < lease.deadline


def _place(known: _Leased) -> tuple[Where, str]:
    """Return where the results are of a run whose record is not on this computer."""
    run = known.run
    if run.lost is not None:
        return Where.LOST, run.lost
    if run.gone is not None:
        return Where.DISCARDED, run.discarded
    if not run.collected:
        return Where.MACHINE, str((known.lease.machine or {}).get("id") or known.lease.id)
    if run.home and run.home != team.writer():
        return Where.ELSEWHERE, run.home
    return Where.REMOVED, ""


def _of_record(one: _Candidate, record: RunRecord) -> PastRun:
    leased, machine, attempts = one.leased, record.machine or {}, record.attempts
    last = attempts[-1] if attempts else {}
    return PastRun(
        one.run_id,
        _profile(one) or _of_machine(machine.get("name")),
        Where.LOST if leased and leased.run.lost is not None else Where.HERE,
        record.path,
        lease=leased.lease.id if leased else None,
        owner=(leased.run.by or leased.lease.owner) if leased else "",
        started_at=attempts[0].get("started_at") if attempts else leased.first if leased else None,
        ended_at=last.get("ended_at") or (leased.ended_at if leased else None),
        recorded_at=one.recorded_at,
        reason=record.exit["reason"],
        detail=record.exit.get("detail", ""),
        parity=_verdict(record.parity),
        models=_models(record.model_check),
        metrics=_metrics(record.metrics),
        usd=_usd(record),
        attempts=_number(record),
        provider=machine.get("provider"),
        machine=machine.get("id"),
        instance_type=machine.get("instance_type"),
        code=record.code,
    )


def _number(record: RunRecord) -> int:
    return record.attempts[-1].get("number", 1) if record.attempts else 1


def _usd(record: RunRecord) -> float | None:
    """Return the cost of all attempts of a run."""
    told = [usd for each in record.attempts if (usd := _finite(each.get("usd"))) is not None]
    cost = record.cost or {}
    return sum(told) if told else _finite(cost.get("run_usd", cost.get("usd")))


def _of_machine(name: str | None) -> str:
    """Return the profile's name within a machine's name, `orch-<profile>-<6 hex>`; "" for other names."""
    found = re.fullmatch(r"orch-(.+)-[0-9a-f]{6}", name or "")
    return found[1] if found else ""


def _verdict(parity: Mapping[str, Any] | None) -> str | None:
    verdict = (parity or {}).get("verdict")
    return verdict if isinstance(verdict, str) else None


def _models(check: Mapping[str, Any] | None) -> ModelCount | None:
    if not check:
        return None
    files = check.get("files") or [check]
    each = [one for one in files if isinstance(one, Mapping)] if isinstance(files, Sequence) else []
    unchecked = sum(bool(one.get("not_checked")) for one in each)
    same = sum(bool(one.get("loaded") and one.get("equal")) for one in each if not one.get("not_checked"))
    return ModelCount(same, len(each) - unchecked - same, unchecked)


def _metrics(found: Mapping[str, Any]) -> dict[str, float]:
    numbers = [(key, value) for key, value in found.items() if _finite(value) is not None]
    return dict(numbers[:_METRICS])


def _finite(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if isinstance(value, int) or math.isfinite(value) else None
