"""train, attach, pull, cancel: one run on a lease's machine, from its first byte to its record here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from orchestrator import jobs
from orchestrator.api import attempts, collect, follow, space
from orchestrator.api.awaiting import what_ended
from orchestrator.api.examining import finished
from orchestrator.api.fetching import bring_home, note_end
from orchestrator.api.folder import Folder, check_run_id, new_run_id, one_at_a_time
from orchestrator.api.lint import look, tell_once
from orchestrator.api.session import Session, open_session
from orchestrator.api.settle import require_gone, settle, settling
from orchestrator.api.spec import require_given
from orchestrator.api.starting import begin, prepared, running
from orchestrator.api.turns import Turn, in_use, turn_of
from orchestrator.api.verdict import complete, judged
from orchestrator.errors import BeforeTheRun, LocalError, RunLost, UsageError
from orchestrator.ledger import Lease, LeasedRun
from orchestrator.model import Exit, Progress, RunRecord, Silent
from orchestrator.profile import Profile, load

Output = Callable[[bytes], None]


class Interrupts:
    """An interrupt lets go of a run that `begun`; before, there is none to let go of: BeforeTheRun."""

    begun = False

    def __enter__(self) -> Interrupts:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is KeyboardInterrupt and not self.begun:
            raise BeforeTheRun from None


@dataclass(frozen=True)
class Wish:
    """How a run is to be made. `seen` is the last attempt at its id that had ended when the call began.

    `overrides`: what this call changes in the profile, or must give again.
    """

    local_parity: bool = False
    detach: bool = False
    strict: bool = False
    retry_failed: bool = False
    parallel: bool = False
    seen: RunRecord | None = None
    overrides: Sequence[str] = ()


def train(
    *,
    run_id: str | None = None,
    lease: str | None = None,
    folder: Path | str | None = None,
    local_parity: bool = False,
    detach: bool = False,
    retry_failed: bool = False,
    parallel: bool = False,
    overrides: Sequence[str] = (),
    strict: bool = False,
    output: Output | None = None,
    progress: Progress | None = None,
) -> RunRecord:
    """Sync, prove, run, follow, pull, check: the record of one run of the lease's profile.

    `local_parity` first runs the first steps here and there and stops where they differ. A `run_id` that was
    used before re-attaches to that run while it goes on; a success is returned at once where command, code,
    data and lock are those of its record, and refused otherwise; a failure is raised again, or with
    `retry_failed` tried anew. Of two calls at once the second waits. `parallel` allows a run beside another
    on the machine. `detach` returns once the run is started (exit reason "running"); `attach` or `pull` bring
    it home. `output` receives what the job prints. What lint finds is said; with `strict` its errors stop it.
    Raises UsageError, LintRefused, StackMismatch, SyncError, ParityMismatch, RunFailed and its kinds (the
    record is in `runs/<id>/` all the same), HostError (the run goes on without us).
    """
    with Interrupts() as interrupts:
        place = Folder.at(folder)
        held = place.lease(lease)
        profile = profile_of(held, overrides)
        _refuse_another_machine(profile_of(held, ()), profile)
        name = check_run_id(run_id) if run_id else new_run_id(profile.name)
        seen = attempts.latest(place.run(name))
        wish = Wish(local_parity, detach, strict, retry_failed, parallel, seen, overrides)
        with in_use(place, profile.name):
            return one_run(place, held, profile, name, wish, interrupts, output, progress or Silent())


def one_run(
    place: Folder,
    held: Lease,
    profile: Profile,
    name: str,
    wish: Wish,
    interrupts: Interrupts,
    output: Output | None,
    tell: Progress,
) -> RunRecord:
    """As `train`, once it is known what is meant."""
    interrupts.begun = _pending(place, held, name)  # by another call that may be at work
    with turn_of(place, name, tell) as turn:
        pending = interrupts.begun = _pending(place, held, name)
        if not pending:
            done = attempts.answer(place, profile, name, retry=wish.retry_failed, seen=wish.seen)
            if done:
                return done
        require_given(held, wish.overrides)
        with one_at_a_time(place, profile.name, tell):
            pass  # an `orch up` that is still at work goes first
        if not pending:
            load(profile.path, overrides=(*held.profile["overrides"], *wish.overrides), files=True)
            _require_space(place, held, profile, name, wish)
            tell_once(look(profile, strict=wish.strict), place.state, tell)
        with _opened(place, held, name, profile, tell) as session:
            draft = None
            if not pending:
                draft = prepared(session, name, local_parity=wish.local_parity, parallel=wish.parallel)
                interrupts.begun = True
            if not begin(session, name, draft, parallel=wish.parallel):
                return judged(_lost(session, name), held.profile["path"])
            turn.give_back()
            if wish.detach:
                return running(session, name)
            return judged(_finish(session, name, output, turn), held.profile["path"])


def _require_space(place: Folder, held: Lease, profile: Profile, name: str, wish: Wish) -> None:
    """Of a detached run the results may wait on the machine. Raises LocalError."""
    exists = f"Nothing was sent. The machine of {held.id} runs on, at ${held.price:.2f}/h."
    again = f"orch train --run-id {name}"
    if wish.detach:
        space.require_records(place, exists, again)
    else:
        space.require_results(place, profile, exists, again)


def attach(
    run_id: str | None = None,
    *,
    lease: str | None = None,
    folder: Path | str | None = None,
    output: Output | None = None,
    progress: Progress | None = None,
) -> RunRecord:
    """Follow a run that was started before until it ends, and bring it home."""
    place = Folder.at(folder)
    held, run = known_run(place, run_id, lease)
    profile = profile_of(held, ())
    tell = progress or Silent()
    with (
        in_use(place, profile.name),
        turn_of(place, run.run_id, tell) as turn,
        _opened(place, held, run.run_id, profile, tell) as session,
    ):
        turn.give_back()
        return judged(_finish(session, run.run_id, output, turn), held.profile["path"])


def pull(
    run_id: str | None = None,
    *,
    again: bool = False,
    lease: str | None = None,
    folder: Path | str | None = None,
    progress: Progress | None = None,
) -> RunRecord:
    """Bring home a run that has ended; without `run_id` the latest that has. Repeating it is safe.

    `again` lists its files anew on the machine, so that what was changed or removed there since comes as
    it is now. A run that still goes on is refused. Raises ResultsLost where a result will not come; all
    else is here then, and the record names the rest.
    """
    place = Folder.at(folder)
    held, run = known_run(place, run_id, lease)
    profile = profile_of(held, ())
    with _opened(place, held, run.run_id, profile, progress or Silent()) as session:
        newest = [each.run_id for each in list(held.runs.values())[::-1] if not each.lost]
        for name in [run_id] if run_id else newest:
            state = jobs.state(session.host, session.agent, name)
            if state.state != "running":
                with turn_of(place, name, session.progress):
                    return complete(bring_home(session, name, state.exit, again=again))
        raise UsageError(
            f"{run.run_id} is still running.",
            exists=f"The machine runs on, at ${held.price:.2f}/h.",
            next_command=f"orch logs -f {run.run_id}",
        )


def cancel(
    run_id: str | None = None,
    *,
    lease: str | None = None,
    folder: Path | str | None = None,
    progress: Progress | None = None,
) -> Exit | None:
    """End a run on its machine; what it wrote stays and can be pulled. Ended already is success."""
    place = Folder.at(folder)
    held, run = known_run(place, run_id, lease)
    profile = profile_of(held, ())
    with _opened(place, held, run.run_id, profile, progress or Silent()) as session:
        state = jobs.cancel(session.host, session.agent, run.run_id)
        note_end(session, run.run_id, state.exit)
        return state.exit


def profile_of(lease: Lease, overrides: Sequence[str]) -> Profile:
    """The profile of a lease as its file is now: what to run may change while the machine is held."""
    return load(Path(lease.profile["path"]), overrides=(*lease.profile["overrides"], *overrides))


_OF_THE_MACHINE = ("cloud", "region", "zone", "resources", "max_duration", "idle_duration", "max_price")


def _refuse_another_machine(leased: Profile, wanted: Profile) -> None:
    """An override of what the machine is would change nothing: it is said rather than ignored."""
    changed = [name for name in _OF_THE_MACHINE if getattr(leased, name) != getattr(wanted, name)]
    if changed:
        raise UsageError(
            f"`train --set` cannot change {', '.join(changed)}: the machine exists already, as `up` made it.",
            exists="The machine runs on.",
            next_command=f"orch down && orch up {leased.path} --set …",
        )


def known_run(place: Folder, run_id: str | None, lease: str | None) -> tuple[Lease, LeasedRun]:
    """The run that is meant: by id, or the latest of the open lease."""
    held = place.lease(lease)
    wanted = run_id or next(reversed(list(held.runs)), None)
    if wanted and wanted in held.runs:
        return held, held.runs[wanted]
    which = f"no run {run_id}" if run_id else "no run yet"
    raise UsageError(f"The lease {held.id} has {which}.", next_command="orch train    # or: orch status")


@contextmanager
def _opened(place: Folder, held: Lease, run_id: str, profile: Profile, tell: Progress) -> Iterator[Session]:
    """The lease's machine. Where it is gone, its runs are settled and `run_id` is told as lost.

    What this computer's disk refuses meanwhile becomes a LocalError that names the machine.
    """
    ledger = place.ledger(held.id)
    with (
        settling(place, ledger, run_id),
        open_session(place, ledger, profile, progress=tell) as session,
    ):
        try:
            yield session
        except OSError as error:
            raise _refused_here(session, held, run_id, error) from error


def _refused_here(session: Session, held: Lease, run_id: str, error: OSError) -> LocalError:
    refused, once = space.refusal_of(error, session.place)
    began = any(run.run_id == run_id for run in session.place.ledger(held.id).lease().uncollected)
    machine = f"{session.machine.id} runs on, at ${session.machine.price:.2f}/h."
    if not began:
        return LocalError(
            f"This computer refused: {refused}. What was here stays; {run_id} was not started.",
            exists=machine,
            next_command=f"orch train --run-id {run_id}    # {once}",
        )
    printed = session.place.run(run_id) / collect.LOG
    return LocalError(
        f"This computer refused: {refused}. What was here stays. What the run printed until then "
        f"is in {printed}.",
        exists=f"The run {run_id} is on its machine, with its results. {machine}",
        next_command=f"orch pull {run_id}    # {once}; while it still runs: orch logs -f {run_id}",
    )


# ---------------------------------------------------------------- the end of one run


def _pending(place: Folder, held: Lease, run_id: str) -> bool:
    """Whether the run was started, and its results are on the machine only."""
    return any(run.run_id == run_id for run in place.ledger(held.id).lease().uncollected)


def _finish(session: Session, run_id: str, output: Output | None, turn: Turn) -> RunRecord:
    """Follow the run, with others who may; then bring it home, unless one of them was quicker."""
    exit_ = follow.to_the_end(session, run_id, output)
    turn.take()
    if exit_ is None:
        return _lost(session, run_id)
    here = collect.read(session.place.run(run_id))
    if here is not None and session.ledger.lease().runs[run_id].collected:
        return finished(here)
    home = follow.over_breaks(session, lambda: bring_home(session, run_id, exit_))
    return _lost(session, run_id) if home is None else home


def _lost(session: Session, run_id: str) -> RunRecord:
    """The machine went away with the run: what is known of it is recorded, and nothing else."""
    require_gone(session.provider, session.ledger.lease())
    ending = what_ended(session.provider, session.ledger.lease())
    settle(session.place, session.ledger, ending)
    record = collect.read(session.place.run(run_id))  # written now, or when it was collected
    if record is None:
        raise RunLost(f"The machine of {run_id} is gone, and its record here was removed.")
    return record
