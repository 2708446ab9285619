"""rerun: repeat a run from its record, and compare the two."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.api.comparing import compare
from orchestrator.api.run_job import run_managed
from orchestrator.api.training import train_again
from orchestrator.errors import Interrupted, UsageError
from orchestrator.model import Progress, RunRecord, Verdict
from orchestrator.model.outcomes import Conclusion
from orchestrator.model.progress import Output, as_progress
from orchestrator.profile.overrides import name_of, without_secrets
from orchestrator.runs import record_file
from orchestrator.runs.find_run import known_ids, no_such_run, profile_of
from orchestrator.runs.outputs import ComparedMetric, ComparedOutput, compare_results
from orchestrator.session.project import Project, check_run_id, new_run_id

if TYPE_CHECKING:
    from orchestrator.leases.consent import Approve
    from orchestrator.training.repeat import RepeatedRun


@dataclass(frozen=True)
class Rerun:
    """A run that was repeated. `first`: the record that was repeated; `record`: the record of the repetition.

    `outputs`: every output of either; `metrics`: those that differ; `verdict`: on their recorded tensors, or
    on their records. `conclusion`: IDENTICAL, DIVERGENT, or NOT COMPARED if neither tensors nor results tell.
    """

    first: RunRecord
    record: RunRecord
    conclusion: Conclusion
    outputs: Sequence[ComparedOutput]
    metrics: Sequence[ComparedMetric]
    verdict: Verdict

    @property
    def same(self) -> bool:
        """Whether outputs, metrics, and tensors if both were recorded, are the same."""
        return self.conclusion == Conclusion.IDENTICAL

    def as_json(self) -> dict[str, Any]:
        return {
            "of": self.first.run_id,
            "conclusion": str(self.conclusion),
            "outputs": [asdict(each) for each in self.outputs],
            "metrics": [each.as_json() for each in self.metrics],
            "verdict": self.verdict.as_json(),
            "cost": [dict(each.cost) if each.cost else None for each in (self.first, self.record)],
            "run": self.record.as_json(),
        }


def rerun(
    run: str,
    *,
    run_id: str | None = None,
    overrides: Sequence[str] = (),
    folder: Path | str | None = None,
    approve: Approve | None = None,
    output: Output | None = None,
    progress: Progress | Callable[[str], None] | None = None,
) -> Rerun:
    """Repeat a run from its record, and compare the two.

    Profile, lock, data and code are those of the record, verified by their digests; the code is restored in a
    separate folder, from git's revision and the copies beside the record. The project is only read. The run
    uses the open lease of the profile; without one, a machine is created and deleted as by `run`, and
    `approve` is asked before that costs money. `overrides` gives the values of train.env that the record
    withholds. A call with the same `run_id` continues one that was interrupted.

    Raises UsageError if the run cannot be repeated, before anything is rented if the inputs are here, and
    what `train` and `run` raise. A different result raises nothing: see `Rerun.conclusion`.
    """
    from orchestrator.training.repeat import restored

    project, tell = Project.at(folder), as_progress(progress)
    first = _record(project, run)
    name = check_run_id(run_id) if run_id else new_run_id(f"{first.run_id[:30]}-again")
    if name == first.run_id:
        raise UsageError(f"The new run needs an id of its own, not {name}.")
    project.require_runs(name)
    tell.say(f"Repeating {first.run_id} as {name}")
    given = _allowed(first, overrides)
    with restored(project, first, name, given, tell) as prepared, _continuable(prepared):
        record = _done(project, first, name, prepared, approve, output, tell)
    return compared(first, record, compare(first.folder, record.folder, folder=project.root))


@contextmanager
def _continuable(prepared: RepeatedRun) -> Iterator[None]:
    """Turn an interrupt of the block into one that says how to continue."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        left = interrupt.exists if isinstance(interrupt, Interrupted) else _LEFT
        raise Interrupted(left, f"{prepared.words}    # goes on from here") from None


_LEFT = "A machine that was created and a run that was started still exist."


def compared(first: RunRecord, second: RunRecord, verdict: Verdict) -> Rerun:
    """Compare two runs of the same inputs. `verdict`: the result of `compare`."""
    found = compare_results(first, second, verdict)
    return Rerun(first, second, found.conclusion, found.outputs, found.metrics, verdict)


def _record(project: Project, run: str) -> RunRecord:
    """The record of a run that can be repeated. Raises UsageError."""
    name = check_run_id(run)
    found = record_file.read(project.run(name))
    known = known_ids(project)
    if found is None and name in known:
        raise UsageError(
            f"{name} has no record here yet, so it cannot be repeated.", next_command=f"orch pull {name}"
        )
    if found is None:
        raise no_such_run(f"There is no run {name} in {project.root}.", name, known)
    if found.machine is None or found.code is None:
        where = "on this computer, by `orch record`" if found.machine is None else "by an older orch"
        command = shlex.join(found.command) if found.command else "COMMAND"
        raise UsageError(
            f"{name} ran {where}: its record does not have the digest of its code, so it cannot be repeated.",
            exists=f"Its record is in {found.folder}.",
            next_command=f"orch record -- {command}    # then: orch compare {name} NEW_RUN",
        )
    return found


def _allowed(first: RunRecord, overrides: Sequence[str]) -> Sequence[str]:
    """The overrides, if they give only what the record withholds."""
    withheld = first.request["withheld"] if first.request else []
    other = [name_of(each) for each in overrides if name_of(each) not in withheld]
    if other:
        flags = [f"--set {shlex.quote(each)}" for each in without_secrets(overrides)]
        given = " ".join(flags) or f"--set {other[0]}=VALUE"
        raise UsageError(
            f"{', '.join(other)} cannot be set: {first.run_id} is repeated as it was.",
            next_command=f"orch train {given}    # a new run, with other settings",
        )
    return overrides


def _done(
    project: Project,
    first: RunRecord,
    name: str,
    prepared: RepeatedRun,
    approve: Approve | None,
    output: Output | None,
    tell: Progress,
) -> RunRecord:
    from orchestrator.training.repeat import require_machine

    profile = prepared.profile
    leased = project.open_lease_of(profile.name)
    if leased is not None and leased.machine is not None and leased.for_run != name:
        require_machine(first, profile_of(leased, ()), profile, leased)
        return train_again(
            project, leased, profile, name, prepared.options(project, prepared.overrides), output, tell
        )
    wish = prepared.options(project, prepared.secrets)
    from orchestrator.training.managed_run import ManagedRun

    call = ManagedRun(project, profile, name, prepared.overrides, wish, tell, approve)
    return run_managed(call, output)
