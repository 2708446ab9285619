"""train, attach, pull, cancel: one run on a lease's machine, from its first byte to its record here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from orchestrator import jobs
from orchestrator.api import collect, follow, proof
from orchestrator.api import trees as trees_
from orchestrator.api.awaiting import what_ended
from orchestrator.api.fetching import bring_home, note_end, run_record, timed
from orchestrator.api.folder import Folder, check_run_id, new_run_id, one_at_a_time
from orchestrator.api.lint import look, tell_once
from orchestrator.api.reading import advice, of_profile
from orchestrator.api.session import Session, check_stack, local_agent, open_session, stack_facts
from orchestrator.api.settle import settle, settling
from orchestrator.api.spec import require_given
from orchestrator.api.verdict import complete, judged
from orchestrator.errors import BeforeTheRun, RunLost, StackMismatch, UsageError
from orchestrator.ledger import Lease, LeasedRun
from orchestrator.model import Difference, Exit, Job, Progress, RunRecord, Silent, TreeLink
from orchestrator.profile import Profile, load

Output = Callable[[bytes], None]


class _Interrupts:
    """An interrupt lets go of a run that `begun`; before, there is none to let go of: BeforeTheRun."""

    begun = False

    def __enter__(self) -> _Interrupts:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is KeyboardInterrupt and not self.begun:
            raise BeforeTheRun from None


def train(
    *,
    run_id: str | None = None,
    lease: str | None = None,
    folder: Path | str | None = None,
    local_parity: bool = False,
    detach: bool = False,
    overrides: Sequence[str] = (),
    strict: bool = False,
    output: Output | None = None,
    progress: Progress | None = None,
) -> RunRecord:
    """Sync, prove, run, follow, pull, check: the record of one run of the lease's profile.

    `local_parity` first runs the first steps here and there and stops where they differ. A `run_id`
    that was used before re-attaches to that run and never starts it twice. `detach` returns once the
    run is started (exit reason "running"); `attach` or `pull` bring it home. `output` receives what the
    job prints. What lint finds in the script is said; with `strict` its errors stop the call.
    Raises LintRefused, StackMismatch, SyncError, ParityMismatch, RunFailed (the record is in `runs/<id>/`
    all the same), HostError (the run goes on without us).
    """
    with _Interrupts() as interrupts:
        place = Folder.at(folder)
        held = place.lease(lease)
        profile = profile_of(held, overrides)
        _refuse_another_machine(profile_of(held, ()), profile)
        name = check_run_id(run_id) if run_id else new_run_id(profile.name)
        interrupts.begun = name in held.runs
        done = collect.read(place.run(name))
        if done and done.exit["reason"] != "not_started" and not _pending(held, name):
            return judged(done, held.profile["path"])
        require_given(held, overrides)
        with one_at_a_time(place, profile.name, progress or Silent()):
            pass  # an `orch up` that is still at work goes first
        if not interrupts.begun:
            tell_once(look(profile, strict=strict), place.state, progress or Silent())
        with _opened(place, held, name, profile, progress) as session:
            if not interrupts.begun:
                _ready(session, name, local_parity)
                interrupts.begun = True
            if not _start(session, name):
                return judged(_lost(session, name), held.profile["path"])
            if detach:
                return _running(session, name)
            return judged(_finish(session, name, output), held.profile["path"])


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
    with _opened(place, held, run.run_id, profile, progress) as session:
        return judged(_finish(session, run.run_id, output), held.profile["path"])


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
    with _opened(place, held, run.run_id, profile, progress) as session:
        newest = [each.run_id for each in list(held.runs.values())[::-1] if not each.lost]
        for name in [run_id] if run_id else newest:
            state = jobs.state(session.host, session.agent, name)
            if state.state != "running":
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
    with _opened(place, held, run.run_id, profile, progress) as session:
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
def _opened(
    place: Folder, held: Lease, run_id: str, profile: Profile, progress: Progress | None
) -> Iterator[Session]:
    """The lease's machine. Where it is gone, its runs are settled and `run_id` is told as lost."""
    ledger = place.ledger(held.id)
    with (
        settling(place, ledger, run_id),
        open_session(place, ledger, profile, progress=progress or Silent()) as session,
    ):
        yield session


# ---------------------------------------------------------------- the steps of one run


def _ready(session: Session, run_id: str, local_parity: bool) -> None:
    """Everything up to the start: stack, bytes, parity; the ledger then knows the run."""
    session.watch_idleness()  # `up` may have been killed before it did
    session.confine()
    timings: dict[str, float] = {}
    with timed(timings, "install_s"):
        installed = session.install()
        differences = check_stack(session, installed)
    stack = {**stack_facts(installed), "lock": session.lock().digest, "differences": _plain(differences)}
    _refuse_undeclared(session, differences)
    local = local_agent(session.place) if local_parity else None
    if local:
        trees_.check_targets(session.profile)
    elif found := of_profile(session.profile):
        session.progress.say(f"Note: {advice(found, session.profile.path, 'names')}")
    with timed(timings, "sync_s"):
        trees = trees_.send(session)
    draft: dict[str, Any] = {"stack": stack, "data": dict(trees.data), "parity": None, "timings": timings}
    draft["agent"] = asdict(session.agent)
    if local:
        with timed(timings, "parity_s"):
            verdict = proof.prove(session, local, trees, run_id, installed.python)
        draft["parity"] = proof.as_json(verdict)
        _refuse_mismatch(session, run_id, draft)
    job = asdict(_job(session.profile, run_id, installed.python, trees))
    session.ledger.append("run.started", run_id=run_id, draft={**draft, "job": job})


def _start(session: Session, run_id: str) -> bool:
    """Start the run that the ledger announced. One that was started before is only found again.

    False where the machine went away."""
    fields = dict(session.ledger.lease().runs[run_id].draft["job"])
    trees = tuple(TreeLink(**link) for link in fields.pop("trees"))
    env = session.profile.train.environment()
    job = Job(**{**fields, "argv": tuple(fields["argv"]), "env": env}, trees=trees)
    outputs = session.profile.train.outputs
    begun = follow.over_breaks(
        session, lambda: jobs.start(session.host, session.agent, job, outputs=outputs, awaited=True)
    )
    if begun:
        session.progress.say(f"Training: {run_id}")
    return begun is not None


def _pending(held: Lease, run_id: str) -> bool:
    return run_id in held.runs and not held.runs[run_id].collected


def _job(profile: Profile, run_id: str, python: str, trees: trees_.Trees) -> Job:
    """The job without its environment, which may hold secrets and therefore never enters the ledger."""
    return Job(
        run_id=run_id,
        argv=profile.train.command,
        python=python,
        trees=trees.there,
    )


def _plain(differences: Sequence[Difference]) -> list[dict[str, Any]]:
    return [asdict(difference) for difference in differences]


def _refuse_undeclared(session: Session, differences: Sequence[Difference]) -> None:
    undeclared = [d for d in differences if not d.declared]
    if not undeclared:
        return
    listed = "\n".join(
        f"  {d.kind} {d.name}: here {d.here or 'absent'}, there {d.there or 'absent'}"
        + (f" ({d.reason})" if d.reason else "")
        for d in undeclared
    )
    names = ", ".join(d.name for d in undeclared)
    raise StackMismatch(
        f"The machine's stack is not the one here, and the profile does not allow the difference:\n{listed}",
        exists=f"{session.machine.id} runs on, at ${session.machine.price:.2f}/h.",
        next_command=f"mend the difference, or allow it by name: stack.allow: [{names}]",
    )


def _refuse_mismatch(session: Session, run_id: str, draft: Mapping[str, Any]) -> None:
    parity = draft["parity"]
    if parity["verdict"] == "IDENTICAL":
        return
    if not session.profile.parity.on_mismatch.stops(parity["verdict"]):
        session.progress.say(f"Parity: {parity['verdict']}: {parity['detail']} The run goes on.")
        return
    ended = {"code": None, "signal": None, "reason": "not_started", "detail": "Parity stopped it."}
    record = run_record(session, run_id, draft, exit=ended)
    collect.write(record)
    error = proof.mismatch(session, run_id, parity)
    error.record = record
    raise error


def _finish(session: Session, run_id: str, output: Output | None) -> RunRecord:
    exit_ = follow.to_the_end(session, run_id, output)
    if exit_ is None:
        return _lost(session, run_id)
    home = follow.over_breaks(session, lambda: bring_home(session, run_id, exit_))
    return _lost(session, run_id) if home is None else home


def _lost(session: Session, run_id: str) -> RunRecord:
    """The machine went away with the run: what is known of it is recorded, and nothing else."""
    ending = what_ended(session.provider, session.ledger.lease())
    settle(session.place, session.ledger, ending)
    record = collect.read(session.place.run(run_id))  # written now, or when it was collected
    if record is None:
        raise RunLost(f"The machine of {run_id} is gone, and its record here was removed.")
    return record


def _running(session: Session, run_id: str) -> RunRecord:
    draft = session.ledger.lease().runs[run_id].draft
    ended = {"code": None, "signal": None, "reason": "running", "detail": f"orch logs -f {run_id}"}
    return run_record(session, run_id, draft, exit=ended)
