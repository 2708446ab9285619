"""One run on several machines that train one model: started together, failing together, one record."""

from __future__ import annotations

import functools
import json
import math
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from orchestrator import jobs, stack
from orchestrator.errors import OrchError, RunFailed, StackMismatch
from orchestrator.leases import joining
from orchestrator.leases.down import down
from orchestrator.leases.gang import leases_of, sessions_of
from orchestrator.ledger import Draft, Lease
from orchestrator.model import Exited, Fingerprint, Lock, Progress, RunRecord, is_allowed
from orchestrator.model.beside import Beside
from orchestrator.model.outcomes import ExitReason
from orchestrator.model.progress import Labelled, Output, notice
from orchestrator.model.workers import WorkersVerdict
from orchestrator.profile import Profile
from orchestrator.runs import attempts, record_file
from orchestrator.runs.known import profile_of
from orchestrator.runs.outcome import raise_for_outcome
from orchestrator.session.interrupts import Interrupts
from orchestrator.session.project import Project
from orchestrator.session.session import Session, open_session, read_lock, told
from orchestrator.training import workers
from orchestrator.training.nodes import node_run, sum_up
from orchestrator.training.one_run import one_run
from orchestrator.training.options import RunOptions

PORT = 20000
"""TensorFlow's port on the first machine; each further one has the next: they may share an address."""
_OTHER_FRAMEWORKS = 500
_POLL_S = 0.1
_SAME = ("cpu_model", "cpu_flags", "machine", "libc")
"""Facts of the platform that change how numbers are rounded."""


class _Abandoned(Exception):
    """Another machine of the gang failed before the run was started."""


@dataclass(frozen=True)
class Compares:
    """That the machines are compared with one process. `again`: the command that repeats the call."""

    run_id: str
    again: str


class Gathering:
    """Where the threads of the machines wait for each other before the run starts, and after it has passed:
    that all have the same packages, and reach each other.
    """

    def __init__(
        self, addresses: Sequence[str], lock: Lock, allow: Sequence[str], compares: Compares | None
    ) -> None:
        self.addresses = addresses
        self.passed = False
        self._lock, self._allow = lock, allow
        self._proven: dict[int, Fingerprint] = {}
        self._sessions: dict[int, Session] = {}
        self._drafts: dict[int, Draft | None] = {}
        self._compares = compares
        self._verdict: WorkersVerdict | None = None
        self._barrier = threading.Barrier(len(addresses), action=self._compare)

    def proven(self, rank: int, fingerprint: Fingerprint) -> None:
        self._proven[rank] = fingerprint

    def wait(self, rank: int, session: Session, run_id: str, draft: Draft | None) -> None:
        """Wait for all. Raises StackMismatch or HostError in one thread, _Abandoned in the others; not if the
        run was started there by an earlier call.
        """
        self._sessions[rank], self._drafts[rank] = session, draft
        try:
            self._barrier.wait()
        except threading.BrokenBarrierError:
            if jobs.state(session.host, session.agent, run_id).state == "absent":
                raise _Abandoned from None

    def abandon_unless_passed(self) -> None:
        """Let nobody wait for a machine that does not come."""
        if not self.passed:
            self._barrier.abort()

    def _compare(self) -> None:
        """Called by the last thread, while the others wait."""
        first = self._proven.get(0)
        for rank, other in sorted(self._proven.items()):
            if rank and first is not None:
                _require_equal(self._lock, self._allow, first, other, rank)
        sessions = [self._sessions[rank] for rank in range(len(self.addresses))]
        joining.require_met(sessions, self.addresses)
        self._compare_with_one(sessions)
        self.passed = True

    def _compare_with_one(self, sessions: Sequence[Session]) -> None:
        """Compare what the machines compute together with one process, if that is asked for."""
        drafts = [self._drafts[rank] for rank in range(len(sessions))]
        jobs_ = [draft.job for draft in drafts if draft is not None and draft.job is not None]
        if self._compares is None or len(jobs_) < len(sessions):
            return
        told = [environment(rank, self.addresses) for rank in range(len(sessions))]
        together = [workers.Worker(*each) for each in zip(sessions, jobs_, told, strict=True)]
        self._verdict = workers.compare_with_one(together, self._compares.run_id)
        workers.require_equal(self._verdict, sessions[0], self._compares.run_id, self._compares.again)

    def judged(self, draft: Draft | None) -> Draft | None:
        """Return the draft of the first machine, with the verdict on the workers."""
        if draft is None or self._verdict is None:
            return draft
        return replace(draft, parity=workers.as_part(draft.parity, self._verdict))


@dataclass(frozen=True)
class GangNode:
    """One machine of several. Implements options.Node."""

    rank: int
    attempt: int
    gathering: Gathering

    def environment(self) -> dict[str, str]:
        return environment(self.rank, self.gathering.addresses)

    def proven(self, fingerprint: Fingerprint) -> None:
        self.gathering.proven(self.rank, fingerprint)

    def wait(self, session: Session, run_id: str, draft: Draft | None) -> Draft | None:
        self.gathering.wait(self.rank, session, run_id, draft)
        return draft if self.rank else self.gathering.judged(draft)


def environment(rank: int, addresses: Sequence[str]) -> dict[str, str]:
    """Return what TensorFlow, JAX and torch read: where the others are, and which one this is."""
    workers = [f"{address}:{PORT + number}" for number, address in enumerate(addresses)]
    cluster = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}}
    count, first = str(len(addresses)), addresses[0]
    return {
        "TF_CONFIG": json.dumps(cluster),
        "JAX_COORDINATOR_ADDRESS": f"{first}:{PORT + _OTHER_FRAMEWORKS}",
        "JAX_NUM_PROCESSES": count,
        "JAX_PROCESS_ID": str(rank),
        "MASTER_ADDR": first,
        "MASTER_PORT": str(PORT + _OTHER_FRAMEWORKS + 1),
        "WORLD_SIZE": count,
        "RANK": str(rank),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "ORCH_NODES": count,
        "ORCH_RANK": str(rank),
    }


def run_together(
    project: Project,
    lease: Lease,
    profile: Profile,
    name: str,
    wish: RunOptions,
    interrupts: Interrupts,
    output: Output | None,
    tell: Progress,
) -> RunRecord:
    """Like `one_run`, on all machines of the profile. Returns the record of the first, with `nodes`.

    If the run ends badly on one, it is cancelled on the others, and the failure is that of the machine where
    it began.
    """
    return _Gang(project, lease, profile, name, wish, tell).train(interrupts, output)


class _Gang:
    def __init__(
        self, project: Project, lease: Lease, profile: Profile, name: str, wish: RunOptions, tell: Progress
    ) -> None:
        self._project, self._profile, self._name, self._wish = project, profile, name, wish
        self._tell = tell
        self._leases = leases_of(project, lease)
        self._attempt = max(self._next_attempt(rank) for rank in range(len(self._leases)))
        addresses = joining.addresses_of(project, self._leases)
        compares = Compares(name, wish.command(profile)) if wish.local_parity else None
        self._gathering = Gathering(addresses, read_lock(profile), profile.stack.allow, compares)

    def train(self, interrupts: Interrupts, output: Output | None) -> RunRecord:
        others = range(1, len(self._leases))
        begun = [Beside(functools.partial(self._first, interrupts, output))]
        begun += [Beside(functools.partial(self._other, rank, output)) for rank in others]
        try:
            errors = self._wait(begun)
        finally:
            self._gathering.abandon_unless_passed()
        records = [self._record(rank) for rank in range(len(self._leases))]
        if not errors:
            first = begun[0].result()
            if first.exit["reason"] == ExitReason.RUNNING:
                return sum_up(first, records)
            return sum_up_here(self._project, first, len(self._leases))
        raise self._failure(errors, records)

    def _next_attempt(self, rank: int) -> int:
        """Return the number of the next attempt on a machine, or of the one that goes on there."""
        name, lease = node_run(self._name, rank), self._leases[rank]
        run = lease.runs.get(name)
        goes_on = run is not None and any(one.run_id == name for one in lease.uncollected)
        return run.attempt if run and goes_on else attempts.number_of_next(self._project, name, run)

    def _first(self, interrupts: Interrupts, output: Output | None) -> RunRecord:
        wish = replace(self._wish, node=GangNode(0, self._attempt, self._gathering))
        try:
            return one_run(
                self._project,
                self._leases[0],
                self._profile,
                self._name,
                wish,
                interrupts,
                output,
                self._tell,
            )
        finally:
            self._gathering.abandon_unless_passed()

    def _other(self, rank: int, output: Output | None) -> RunRecord:
        lease, node = self._leases[rank], GangNode(rank, self._attempt, self._gathering)
        profile = profile_of(lease, self._wish.overrides)
        wish = replace(self._wish, node=node, local_parity=False, resume_proof=False, same_as=None)
        wish = replace(wish, seen=self._record(rank))
        tell = Labelled(f"node {rank}", self._tell)
        printed = prefixed(f"[{rank}] ", output) if output else None
        try:
            return one_run(
                self._project, lease, profile, node_run(self._name, rank), wish, Interrupts(), printed, tell
            )
        finally:
            self._gathering.abandon_unless_passed()

    # ------------------------------------------------------------ the end

    def _wait(self, begun: Sequence[Beside[RunRecord]]) -> dict[int, Exception]:
        """Wait until all have ended, and return what they raised, by rank. After the first failure of a run
        it is cancelled on the others. An error that leaves the run alone is raised at once.
        """
        left, errors, cancelled = set(range(len(begun))), dict[int, Exception](), False
        while left:
            for rank in [rank for rank in left if not begun[rank].goes_on]:
                left.discard(rank)
                try:
                    begun[rank].result()
                except _Abandoned:
                    pass
                except Exception as error:
                    errors[rank] = error
                    if self._gathering.passed and not isinstance(error, RunFailed):
                        raise
            failed = [rank for rank, error in errors.items() if isinstance(error, RunFailed)]
            if failed and left and not cancelled:
                cancelled = True
                notice(self._tell, f"{self._name} ended on node {failed[0]}; ending it on the others")
                cancel_on(self._project, [self._leases[one] for one in left], self._name, self._tell)
            time.sleep(_POLL_S)
        return errors

    def _record(self, rank: int) -> RunRecord | None:
        return record_file.read(self._project.run(node_run(self._name, rank)))

    def _end(self, rank: int) -> float:
        """Return when the job ended on a machine; infinity if that is not known."""
        lease = self._project.ledger(self._leases[rank].id).lease()
        name = node_run(self._name, rank)
        return next((ran.ended for ran in lease.ran if ran.is_of(name, self._attempt)), math.inf)

    def _failure(self, errors: Mapping[int, Exception], records: Sequence[RunRecord | None]) -> Exception:
        """Return the error of the machine where the failure began, with the record of the whole run."""
        failed = {rank for rank, error in errors.items() if isinstance(error, RunFailed)}
        rank = _where_it_began(failed, records, [self._end(rank) for rank in range(len(records))])
        if rank is None:
            return next(iter(errors.values()))
        first, begun = records[0], records[rank]
        if first is None or begun is None:
            return errors[rank]
        whole = sum_up(first, records)
        interrupted = ExitReason(begun.exit["reason"]).interrupted
        if parted := "" if interrupted else self._parted():
            whole = _ended_as(whole, {"code": None, "signal": None, "reason": ExitReason.LOST}, parted)
        elif rank:
            detail = str(begun.exit.get("detail") or begun.exit["reason"])
            whole = _ended_as(whole, begun.exit, f"node {rank}: {detail}")
        _written(whole)
        try:
            again, first_lease = self._wish.anew(self._profile), self._leases[0]
            path, up = first_lease.profile["path"], first_lease.up_command
            raise_for_outcome(whole, path, again=again, up=up)
        except RunFailed as error:
            return error
        return errors[rank]

    def _parted(self) -> str:
        """Return who does not reach whom, if the network between the machines may be why the run failed; ""
        if all reach each other. Those that do not are deleted, except the first: new ones may reach it.
        """
        try:
            with sessions_of(self._project, self._leases[0], self._tell) as sessions:
                found = joining.apart(sessions, self._gathering.addresses)
        except OrchError:
            return ""
        if found:
            for lease in self._leases[1:]:
                down(lease.id, folder=self._project.root, progress=self._tell)
        return "; ".join(found)


def cancel_on(project: Project, leases: Sequence[Lease], name: str, tell: Progress) -> None:
    """End the run on these machines. One that is gone or does not answer is passed over."""
    for lease in leases:
        with (
            suppress(OrchError),
            open_session(project, project.ledger(lease.id), profile_of(lease, ()), progress=tell) as session,
        ):
            jobs.cancel(session.host, session.agent, node_run(name, lease.rank))


def sum_up_here(project: Project, record: RunRecord, machines: int) -> RunRecord:
    """Add what is here of the run on the other machines to the record of the first, and write it."""
    names = [node_run(record.run_id, rank) for rank in range(1, machines)]
    others = [record_file.read(project.run(name)) for name in names]
    return _written(sum_up(record, [record, *others]))


def _where_it_began(
    failed: Collection[int], records: Sequence[RunRecord | None], ends: Sequence[float]
) -> int | None:
    """Return the rank whose failure explains the others: a machine that was lost, then the job that ended
    first. `ends`: Unix seconds, by the machines' clocks.
    """

    def order(rank: int) -> tuple[bool, bool, float]:
        record = records[rank]
        reason = ExitReason(record.exit["reason"]) if record else ExitReason.LOST
        return not reason.interrupted, reason == ExitReason.CANCELLED, ends[rank]

    return min(failed, key=order, default=None)


def _ended_as(record: RunRecord, ended: Exited, detail: str) -> RunRecord:
    """Return the record with another end than that of the first machine."""
    exit_: Exited = {**ended, "detail": detail}
    attempts = list(record.attempts)
    if attempts:
        attempts[-1] = {**attempts[-1], "reason": str(ended["reason"]), "detail": detail}
    return replace(record, exit=exit_, attempts=attempts)


def _written(record: RunRecord) -> RunRecord:
    record_file.write(record)
    return record


def _require_equal(
    lock: Lock, allow: Sequence[str], first: Fingerprint, other: Fingerprint, rank: int
) -> None:
    """Raise StackMismatch if two machines differ in what can change numbers."""
    found = stack.differences(lock, first, other, allow)
    differing = [
        one
        for one in found
        if not is_allowed(one.kind, one.name, allow)
        and (not one.declared or one.kind == "driver" or (one.kind == "platform" and one.name in _SAME))
    ]
    if differing:
        names = ", ".join(one.name for one in differing)
        listed = "; ".join(told(one) for one in differing)
        raise StackMismatch(
            f"Node {rank} differs from node 0 (here: node 0, there: node {rank}): {listed}.",
            next_command=f"orch down, then up again; or allow it by name: stack.allow: [{names}]",
        )


def prefixed(prefix: str, output: Output) -> Output:
    """Return an output that gets whole lines only, each after `prefix`."""
    held = bytearray()

    def add(data: bytes) -> None:
        held.extend(data)
        *lines, rest = bytes(held).split(b"\n")
        held[:] = rest
        if lines:
            output(b"".join(prefix.encode() + line + b"\n" for line in lines))

    return add
