"""One run on several machines that train one model: started together, ended together if one fails, with one
record.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from orchestrator import jobs
from orchestrator.errors import OrchError, RunFailed
from orchestrator.leases import joining
from orchestrator.leases.down import down
from orchestrator.leases.gang import leases_of, sessions_of
from orchestrator.ledger import Lease
from orchestrator.model import Exited, Progress, RunRecord
from orchestrator.model.beside import Beside
from orchestrator.model.outcomes import ExitReason
from orchestrator.model.progress import Labelled, Output, notice
from orchestrator.profile import Profile
from orchestrator.runs import attempts, record_file
from orchestrator.runs.find_run import profile_of
from orchestrator.runs.outcome import raise_for_outcome
from orchestrator.session.interrupts import Interrupts
from orchestrator.session.project import Project
from orchestrator.session.session import open_session, read_lock
from orchestrator.training.nodes import node_run, sum_up
from orchestrator.training.one_run import one_run
from orchestrator.training.options import RunOptions
from orchestrator.training.origin import began_on, end_of, told
from orchestrator.training.start_barrier import Abandoned, Compares, GangNode, StartBarrier

_POLL_S = 0.1


class Gang:
    """The machines of a run. `lease`, `profile`: of the first; `name`: the run's id."""

    def __init__(
        self, project: Project, lease: Lease, profile: Profile, name: str, options: RunOptions, tell: Progress
    ) -> None:
        self._project, self._profile, self._name, self._options = project, profile, name, options
        self._tell = tell
        self._leases = leases_of(project, lease)
        self._attempt = max(self._next_attempt(rank) for rank in range(len(self._leases)))
        addresses = joining.addresses_of(project, self._leases)
        compares = Compares(name, options.command(profile)) if options.local_parity else None
        self._barrier = StartBarrier(addresses, read_lock(profile), profile.stack.allow, compares)

    def train(self, interrupts: Interrupts, output: Output | None) -> RunRecord:
        """Return the record of the first machine, with `nodes`.

        If the run ends badly on one machine, it is cancelled on the others, and the failure is that of the
        machine where it began.
        """
        others = range(1, len(self._leases))
        first_run = functools.partial(self._run, 0, self._profile, self._options, interrupts, output)
        begun = [Beside(first_run)]
        begun += [Beside(functools.partial(self._other, rank, output)) for rank in others]
        try:
            errors = self._wait(begun)
        finally:
            self._barrier.abandon_unless_passed()
        records = [self._record(rank) for rank in range(len(self._leases))]
        if not errors:
            first = begun[0].result()
            if first.exit["reason"] == ExitReason.RUNNING:
                return sum_up(first, records)
            return sum_up_here(self._project, first, len(self._leases))
        raise self._failure(errors, records)

    def _next_attempt(self, rank: int) -> int:
        """Return the number of the active attempt on a machine, or else of the next one."""
        name, lease = node_run(self._name, rank), self._leases[rank]
        run = lease.runs.get(name)
        goes_on = run is not None and any(one.run_id == name for one in lease.uncollected)
        return run.attempt if run and goes_on else attempts.number_of_next(self._project, name, run)

    def _run(
        self, rank: int, profile: Profile, options: RunOptions, interrupts: Interrupts, output: Output | None
    ) -> RunRecord:
        """Make the attempt on one machine, or follow it there."""
        tell = Labelled(f"node {rank}", self._tell) if rank else self._tell
        options = replace(options, node=GangNode(rank, self._attempt, self._barrier))
        job = (self._project, self._leases[rank], profile, node_run(self._name, rank), options)
        try:
            return one_run(*job, interrupts, output, tell)
        finally:
            self._barrier.abandon_unless_passed()

    def _other(self, rank: int, output: Output | None) -> RunRecord:
        profile = profile_of(self._leases[rank], self._options.overrides)
        options = replace(self._options, local_parity=False, resume_proof=False, same_as=None)
        printed = prefixed(f"[{rank}] ", output) if output else None
        return self._run(rank, profile, replace(options, seen=self._record(rank)), Interrupts(), printed)

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
                except Abandoned:
                    pass
                except Exception as error:
                    errors[rank] = error
                    if self._barrier.passed and not isinstance(error, RunFailed):
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
        """Return when the job ended on a machine, Unix seconds; infinity if that is not known."""
        lease = self._project.ledger(self._leases[rank].id).lease()
        name = node_run(self._name, rank)
        return next((ran.ended for ran in lease.ran if ran.is_of(name, self._attempt)), math.inf)

    def _failure(self, errors: Mapping[int, Exception], records: Sequence[RunRecord | None]) -> Exception:
        """Return the error of the machine where the failure began, with the record of the whole run."""
        failed = [rank for rank, error in errors.items() if isinstance(error, RunFailed)]
        began = began_on([end_of(rank, records[rank], self._end(rank)) for rank in failed])
        if not began:
            return next(iter(errors.values()))
        first, rank = records[0], began[0]
        begun = [record for each in began if (record := records[each]) is not None]
        if first is None or len(begun) < len(began) or first.nodes:  # nodes: the failure of an earlier call
            return errors[rank]
        whole, ended = sum_up(first, records), [record.exit for record in begun]
        interrupted = ExitReason(ended[0]["reason"]).interrupted
        if parted := "" if interrupted else self._parted():
            whole = _ended_as(whole, {"code": None, "signal": None, "reason": ExitReason.LOST}, parted)
        elif began != (0,):
            output = f"(orch logs {node_run(self._name, rank)})" if rank else ""
            whole = _ended_as(whole, ended[0], f"{told(began, ended)} {output}".rstrip())
        _written(whole)
        try:
            again, first_lease = self._options.anew(self._profile), self._leases[0]
            path, up = first_lease.profile["path"], first_lease.up_command
            raise_for_outcome(whole, path, again=again, up=up)
        except RunFailed as error:
            return error
        return errors[rank]

    def _parted(self) -> str:
        """Return a sentence on machines that cannot reach each other, if that may be why the run failed; else
        "". All but the first are deleted then, so that `retry` replaces them.
        """
        found: list[str] = []
        with suppress(OrchError):
            with sessions_of(self._project, self._leases[0], self._tell) as sessions:
                found = joining.apart(sessions, self._barrier.addresses)
            for lease in self._leases[1:] if found else ():
                down(lease.id, folder=self._project.root, progress=self._tell)
        return "; ".join(found)


def cancel_on(project: Project, leases: Sequence[Lease], name: str, tell: Progress) -> None:
    """Cancel the run on these machines, except those that are gone or do not answer."""
    for lease in leases:
        with (
            suppress(OrchError),
            open_session(project, project.ledger(lease.id), profile_of(lease, ()), progress=tell) as session,
        ):
            jobs.cancel(session.host, session.agent, node_run(name, lease.rank))


def sum_up_here(project: Project, record: RunRecord, machines: int) -> RunRecord:
    """Add the local records of the other machines to that of the first, and write it."""
    names = [node_run(record.run_id, rank) for rank in range(1, machines)]
    others = [record_file.read(project.run(name)) for name in names]
    return _written(sum_up(record, [record, *others]))


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


def prefixed(prefix: str, output: Output) -> Output:
    """Return an output that passes on whole lines, each with `prefix`."""
    held = bytearray()

    def add(data: bytes) -> None:
        held.extend(data)
        *lines, rest = bytes(held).split(b"\n")
        held[:] = rest
        if lines:
            output(b"".join(prefix.encode() + line + b"\n" for line in lines))

    return add
