"""A run with a machine of its own: the machine is created, the run is made, and the machine is deleted at the
end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
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
from orchestrator.model.progress import Output, notice
from orchestrator.profile import Profile
from orchestrator.runs.find_run import profile_of
from orchestrator.session.interrupts import Interrupts
from orchestrator.session.project import Project
from orchestrator.session.work_locks import exclusive_use, shared_use

if TYPE_CHECKING:
    from orchestrator.leases.consent import Approve
    from orchestrator.training.options import RunOptions

_ENDED = "The machine was deleted; nothing costs money any more."


@dataclass(frozen=True)
class ManagedRun:
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


def run_to_its_end(call: ManagedRun, output: Output | None) -> RunRecord:
    """The run's record; if there is none, what the call created is deleted."""
    try:
        with shared_use(call.project, call.profile.name):
            return _to_the_end(call, output)
    except BaseException as error:
        _end_after(call, error)
        raise


def _to_the_end(call: ManagedRun, output: Output | None) -> RunRecord:
    """One attempt, or several if the profile's `retry` allows it; each attempt finds its own machine."""
    from orchestrator.training.retrying import RetriedRun, until_it_ends

    def attempt(wish: RunOptions) -> RunRecord:
        now = replace(call, wish=wish)
        return _answered(now) or _one_attempt(now, output)

    course = RetriedRun(call.project, call.profile, call.run_id, attempt, lambda _: None, call.tell, own=True)
    return until_it_ends(course, call.wish)


def require(call: ManagedRun) -> None:
    """Refuse what would fail after a machine was created. Raises UsageError and LocalError."""
    from orchestrator.session.watched import require_observable
    from orchestrator.training.resume import require_checkpoints

    if call.wish.local_parity:
        without = call.wish.command(call.profile, local_parity=False)
        require_observable(call.profile, without, "Nothing was rented or started by this call.")
    if call.wish.resume_proof:
        require_checkpoints(call.profile, call.words)
    if call.wish.seen is None:
        _require_space(call)


def _require_space(call: ManagedRun) -> None:
    from orchestrator.runs import space

    space.require_results(call.project, call.profile, "Nothing was rented or sent by this call.", call.words)


def _answered(call: ManagedRun) -> RunRecord | None:
    """The record, if it needs no machine. A run whose machine is gone is settled first."""
    lease = _lease(call)
    if lease is not None and lease.uncollected:
        _settle_where_gone(call, lease)
        if any(run.run_id == call.run_id for run in call.project.ledger(lease.id).lease().uncollected):
            return None
    from orchestrator.training.one_run import recorded

    return recorded(call.project, call.profile, call.run_id, call.wish, call.tell)


def _settle_where_gone(call: ManagedRun, lease: Lease) -> None:
    from orchestrator.leases.settle import settle
    from orchestrator.providers import open_provider
    from orchestrator.session.machines import serving
    from orchestrator.session.reach import ending_of_machine, require_seen

    provider = open_provider(lease.profile["cloud"])
    require_seen(provider, lease)
    if serving(provider, lease) is None:
        for lost in settle(call.project, call.project.ledger(lease.id), ending_of_machine(provider, lease)):
            notice(call.tell, f"{lost.run_id}: {lost.exit['detail']}")


def _one_attempt(call: ManagedRun, output: Output | None) -> RunRecord:
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


def _with_machine(call: ManagedRun) -> Lease:
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


def _lease(call: ManagedRun) -> Lease | None:
    return call.project.open_lease_of(call.profile.name)


@dataclass(frozen=True)
class Left:
    """What is left of a machine, why, and the next command."""

    text: str
    next_command: str

    def __str__(self) -> str:
        return f"{self.text} Next: {self.next_command}"


def end_machine(call: ManagedRun) -> Left | None:
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


def machine_stays(call: ManagedRun) -> str:
    """The notice that a detached run continues and its machine stays."""
    lease = _lease(call)
    price = f", at ${lease.price:.2f}/h" if lease else ""
    finish = call.wish.command(call.profile, detach=False)
    return f"{call.run_id} is running; its machine stays{price}. To finish it: {finish}"


def _left(lease: Lease, why: str, next_command: str) -> Left:
    machine = (lease.machine or {}).get("id", f"of {lease.id}")
    return Left(f"The machine {machine} was left running, at ${lease.price:.2f}/h: {why}.", next_command)


def _end_after(call: ManagedRun, error: BaseException) -> None:
    """Delete the machine after a failure; the error then says what is left and what to do.

    An interrupt becomes Interrupted, which says so too.
    """
    lease = _lease(call)
    had = lease is not None and lease.machine is not None
    try:
        left = end_machine(call)
    except OrchError as unended:
        said = f"Its machine could not be ended: {unended.message} {unended.exists or ''}".rstrip()
        left = Left(said, f"orch down {lease.id}" if lease else "orch status")
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


def _interrupted(call: ManagedRun, left: Left | None) -> Interrupted:
    if left is None:
        return Interrupted(_ENDED, call.words)
    other = "" if call.wish.words else f"; or: {left.next_command}"
    return Interrupted(left.text, f"{call.words}    # goes on from here{other}")


def _say_what_is_left(call: ManagedRun, error: OrchError, left: Left | None) -> None:
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
