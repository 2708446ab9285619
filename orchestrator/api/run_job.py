"""run: up, train and down in one call, for a scheduled job that may be started twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import (
    HostError,
    Interrupted,
    LocalError,
    OrchError,
    OutOfMemory,
    ParityMismatch,
    ResultsLost,
    RunFailed,
)
from orchestrator.ledger import Lease
from orchestrator.model import Progress, RunRecord
from orchestrator.model.outcomes import ExitReason
from orchestrator.model.progress import Output, as_progress, notice
from orchestrator.profile import Profile, load
from orchestrator.profile.overrides import secrets_of
from orchestrator.runs.find_run import profile_of
from orchestrator.session.interrupts import Interrupts
from orchestrator.session.project import Project, check_run_id
from orchestrator.session.work_locks import exclusive_use, shared_use

if TYPE_CHECKING:
    from orchestrator.leases.consent import Approve
    from orchestrator.training.options import RunOptions

_ENDED = "The machine was deleted; nothing costs money any more."


@dataclass(frozen=True)
class _Call:
    """One call of `run`."""

    project: Project
    profile: Profile
    run_id: str
    overrides: Sequence[str]
    wish: RunOptions
    tell: Progress
    approve: Approve | None = None

    @property
    def words(self) -> str:
        """The command line that repeats the call."""
        return self.wish.command(self.profile)


def run(
    profile: str | Path,
    *,
    run_id: str,
    overrides: Sequence[str] = (),
    folder: Path | str | None = None,
    local_parity: bool = False,
    resume_proof: bool = False,
    retry_failed: bool = True,
    parallel: bool = False,
    detach: bool = False,
    output: Output | None = None,
    progress: Progress | Callable[[str], None] | None = None,
) -> RunRecord:
    """Run up, train and down. A call with the same `run_id` continues from the record, run or machine that
    exists.

    A success is returned at once if command, code, data and lock are those of its record; otherwise
    UsageError names the difference. A failed or lost run is tried again as a new attempt with the current
    project; without `retry_failed`, its failure is raised and nothing is rented. If two calls use one id, the
    second waits and gets the same result. `parallel`: see `train`.

    `detach` returns once the run has started (exit reason "running"); the machine stays. Call `run` again
    with the same `run_id` to finish: with `detach` it returns at once while the run is active, and finishes
    it once it has ended. If `retry` allows another attempt, that call starts it.

    The machine is deleted at the end, unless results on it could not be downloaded, another call uses it, or
    it existed before (`up`): `progress` or the error's `exists` then report it with its price. Raises what
    `up` and `train` raise, and CleanupUnproven; NotAccepted after the machine was deleted.
    """
    tell = as_progress(progress)
    from orchestrator.training.options import RunOptions

    wish = RunOptions(
        local_parity=local_parity,
        resume_proof=resume_proof,
        detach=detach,
        retry_failed=retry_failed,
        parallel=parallel,
        overrides=overrides,
        verb="run",
        path=str(profile),
        run_id=check_run_id(run_id),
    )
    return run_as(wish, folder, output, tell)


def run_as(asked: RunOptions, folder: Path | str | None, output: Output | None, tell: Progress) -> RunRecord:
    """Like `run`, with its options as one value."""
    project, name = Project.at(folder), asked.run_id
    project.require_runs(name)
    wanted = load(Path(asked.path), overrides=tuple(asked.overrides), files=True)
    from orchestrator.runs import attempts
    from orchestrator.training.elsewhere import bring_record

    project.share(wanted.ledger)
    bring_record(project, wanted, name, tell)
    seen = attempts.latest_attempt(project.run(name))
    wish = replace(asked, seen=seen, overrides=secrets_of(asked.overrides), asked=asked)
    from orchestrator.runs.endings import reported

    with reported(project, wanted, name, tell) as ended:
        return ended(_run(_Call(project, wanted, name, asked.overrides, wish, tell), output))


def run_again(
    project: Project,
    profile: Profile,
    name: str,
    overrides: Sequence[str],
    wish: RunOptions,
    output: Output | None,
    tell: Progress,
    approve: Approve | None,
) -> RunRecord:
    """Like `run`, with a profile that was read, and `approve` asked before money is spent. See `rerun`."""
    return _run(_Call(project, profile, name, overrides, wish, tell, approve), output)


def _run(call: _Call, output: Output | None) -> RunRecord:
    """Train, end the machine, then pass the run through the gate of its profile."""
    from orchestrator.promotion.gate import judge

    _require(call)
    record = _ended_on_error(call, output)
    if record.exit["reason"] == ExitReason.RUNNING:
        notice(call.tell, _detached(call))
        return record
    try:
        left = _end(call)
    except OrchError as error:
        error.record = record  # type: ignore[attr-defined]
        raise
    if left:
        notice(call.tell, str(left))
    if call.wish.same_as is not None:
        return record  # a repeated run has no new model
    return judge(call.project, call.profile, record, "run", call.tell)


def _ended_on_error(call: _Call, output: Output | None) -> RunRecord:
    """The run's record; if there is none, what the call created is deleted."""
    try:
        with shared_use(call.project, call.profile.name):
            return _to_the_end(call, output)
    except BaseException as error:
        _end_after(call, error)
        raise


def _to_the_end(call: _Call, output: Output | None) -> RunRecord:
    """One attempt, or several if the profile's `retry` allows it; each attempt finds its own machine."""
    from orchestrator.training.retrying import RetriedRun, until_it_ends

    def attempt(wish: RunOptions) -> RunRecord:
        now = replace(call, wish=wish)
        return _answered(now) or _made(now, output)

    course = RetriedRun(call.project, call.profile, call.run_id, attempt, lambda _: None, call.tell, own=True)
    return until_it_ends(course, call.wish)


def _require(call: _Call) -> None:
    """Refuse what would fail after a machine was created."""
    from orchestrator.training.resume import require_checkpoints

    if call.wish.resume_proof:
        require_checkpoints(call.profile, call.words)
    if call.wish.seen is None:
        _require_space(call)


def _require_space(call: _Call) -> None:
    from orchestrator.runs import space

    space.require_results(call.project, call.profile, "Nothing was rented or sent by this call.", call.words)


def _answered(call: _Call) -> RunRecord | None:
    """The record, if it needs no machine. A run whose machine is gone is settled first."""
    lease = _lease(call)
    if lease is not None and lease.uncollected:
        _settle_where_gone(call, lease)
        if any(run.run_id == call.run_id for run in call.project.ledger(lease.id).lease().uncollected):
            return None
    from orchestrator.training.one_run import recorded

    return recorded(call.project, call.profile, call.run_id, call.wish, call.tell)


def _settle_where_gone(call: _Call, lease: Lease) -> None:
    from orchestrator.leases.settle import settle
    from orchestrator.providers import open_provider
    from orchestrator.session.machines import serving
    from orchestrator.session.reach import ending_of_machine, require_seen

    provider = open_provider(lease.profile["cloud"])
    require_seen(provider, lease)
    if serving(provider, lease) is None:
        for lost in settle(call.project, call.project.ledger(lease.id), ending_of_machine(provider, lease)):
            notice(call.tell, f"{lost.run_id}: {lost.exit['detail']}")


def _made(call: _Call, output: Output | None) -> RunRecord:
    """Make an attempt on the profile's machine, or follow an active one to its end."""
    _require_space(call)
    from orchestrator.training import elsewhere

    lease = _lease(call)
    if lease and (far := elsewhere.followed(call.project, lease, call.run_id, "run", output, call.tell)):
        return far
    if lease:
        elsewhere.end_out_of_reach(call.project, lease, call.run_id, call.tell)
    lease = _with_machine(call)
    profile = profile_of(lease, call.wish.overrides)
    from orchestrator.training.one_run import run_on_all

    return run_on_all(call.project, lease, profile, call.run_id, call.wish, Interrupts(), output, call.tell)


def _with_machine(call: _Call) -> Lease:
    """The profile's lease with its machine ready, in another zone than an interrupted attempt if one has an
    offer.
    """
    from orchestrator.leases.gang import provision_all
    from orchestrator.leases.provision import LeaseRequest
    from orchestrator.leases.replace import end_interrupted, free_to_move
    from orchestrator.runs import attempts
    from orchestrator.runs.retries import failed_places

    last, lease = attempts.latest_attempt(call.project.run(call.run_id)), _lease(call)
    if last is not None and lease is not None and last.exit["reason"] == ExitReason.PREEMPTED:
        end_interrupted(call.project, lease, str((last.machine or {}).get("id")), call.tell)
        free_to_move(call.project, call.project.ledger(lease.id).lease(), call.profile, call.tell)
    asked = LeaseRequest(call.project, call.profile, call.overrides, call.approve, call.tell)
    held = provision_all(replace(asked, for_run=call.run_id, avoid=failed_places(last)))
    return call.project.ledger(held.lease).lease()


# ---------------------------------------------------------------- the end of the machine


def _lease(call: _Call) -> Lease | None:
    return call.project.open_lease_of(call.profile.name)


@dataclass(frozen=True)
class _Left:
    """What is left of a machine, why, and the next command."""

    text: str
    next_command: str

    def __str__(self) -> str:
        return f"{self.text} Next: {self.next_command}"


def _end(call: _Call) -> _Left | None:
    """Delete the machine that `run` created; returns what is left and why, if it must stay. Raises what
    `down` does.
    """
    from orchestrator.leases.down import down
    from orchestrator.leases.remains import command_to_fetch, what_is_there

    with exclusive_use(call.project, call.profile.name) as nobody:
        lease = _lease(call)
        if lease is None:
            return None
        if not nobody:
            return _left(lease, "another orch uses it, and the last `run` ends it", "orch status")
        if lease.for_run is None:
            return _left(lease, "it was there before this call", "orch down")
        if lease.uncollected:
            return _left(lease, what_is_there(lease), command_to_fetch(lease))
        down(lease.id, folder=call.project.root, progress=call.tell)
        return None


def _detached(call: _Call) -> str:
    """The notice that a detached run continues and its machine stays."""
    lease = _lease(call)
    price = f", at ${lease.price:.2f}/h" if lease else ""
    finish = call.wish.command(call.profile, detach=False)
    return f"{call.run_id} is running; its machine stays{price}. To finish it: {finish}"


def _left(lease: Lease, why: str, next_command: str) -> _Left:
    machine = (lease.machine or {}).get("id", f"of {lease.id}")
    return _Left(f"The machine {machine} was left running, at ${lease.price:.2f}/h: {why}.", next_command)


def _end_after(call: _Call, error: BaseException) -> None:
    """Delete the machine after a failure; the error then says what is left and what to do.

    An interrupt becomes Interrupted, which says so too.
    """
    lease = _lease(call)
    had = lease is not None and lease.machine is not None
    try:
        left = _end(call)
    except OrchError as unended:
        said = f"Its machine could not be ended: {unended.message} {unended.exists or ''}".rstrip()
        left = _Left(said, f"orch down {lease.id}" if lease else "orch status")
    if isinstance(error, Interrupted):  # of `up`, which says what it left
        raise Interrupted(_ENDED if had and left is None else error.exists, call.words) from None
    if isinstance(error, KeyboardInterrupt) and (left or had):
        raise _interrupted(call, left) from None
    if not isinstance(error, OrchError):
        if left or had:
            notice(call.tell, str(left or _ENDED))
        return
    if had:
        _say_what_is_left(call, error, left)


def _interrupted(call: _Call, left: _Left | None) -> Interrupted:
    if left is None:
        return Interrupted(_ENDED, call.words)
    other = "" if call.wish.words else f"; or: {left.next_command}"
    return Interrupted(left.text, f"{call.words}    # goes on from here{other}")


def _say_what_is_left(call: _Call, error: OrchError, left: _Left | None) -> None:
    files = f" What came home of the run is in {call.project.run(call.run_id)}."
    kept = files if isinstance(error, (RunFailed, ParityMismatch)) else ""
    error.exists = (left.text if left else _ENDED) + kept
    to_fetch = left is not None and isinstance(error, ResultsLost)  # it names the command that fetches them
    if isinstance(error, LocalError):
        ends = ": it brings the results home, and ends the machine" if left else ""
        error.next_command = f"{call.words}    # once that is settled{ends}"
    elif isinstance(error, OutOfMemory) and isinstance(error.record, RunRecord) and error.record.lacked:
        from orchestrator.runs.outcome import more_memory

        error.next_command = more_memory(error.record.lacked, str(call.profile.path), call.words)
    elif isinstance(error, (RunFailed, ParityMismatch, HostError)) and not to_fetch:
        error.next_command = call.words
    elif left and error.next_command is None:
        error.next_command = left.next_command
