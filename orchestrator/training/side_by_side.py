"""Compare the first steps on both sides before the long run.

On this computer they run in the user's own folder and environment, on the machine with what was sent.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator import jobs, parity
from orchestrator.errors import DataNotSent, ParityMismatch, RunFailed
from orchestrator.hosts.here import HereHost
from orchestrator.jobs import PathTaken
from orchestrator.model import Agent, Verdict
from orchestrator.model.counted import counted
from orchestrator.model.outcomes import Conclusion, ending
from orchestrator.parity.naming import HERE_AND_THERE
from orchestrator.parity.places import named_alike
from orchestrator.parity.recording import read
from orchestrator.profile import Profile
from orchestrator.profile.mismatch import key_of
from orchestrator.profile.overrides import name_of, of_environment, secrets_of
from orchestrator.profile.resolved import PARAMETER
from orchestrator.reads.opened import read_opened
from orchestrator.reads.reference import LaidOut, Reference, View
from orchestrator.reads.sent import not_sent, sent_of
from orchestrator.reads.undeclared import Undeclared, undeclared
from orchestrator.reads.undeclared_words import declare_command, profile_lines, undeclared_sentence
from orchestrator.replay.confirm import Sides, confirm, imitation_of, is_confirmable, light_steps
from orchestrator.replay.recipe import Recipe, acting_now, keep_inputs, this_host, write_recipe
from orchestrator.replay.replayer import Replayer
from orchestrator.runs.other_runs import naming_other_run
from orchestrator.session.session import Session
from orchestrator.session.trees import Trees
from orchestrator.training.observed import Ended, Observed, fetch_recording, observed_job, run_observed
from orchestrator.training.options import RunOptions

_SIDES = ("here", "there")


def compare_first_steps(
    session: Session, local: Agent, trees: Trees, run_id: str, there_python: str, options: RunOptions
) -> Verdict:
    """Run the profile's first steps on both sides at once and compare every tensor.

    This computer uses a copy of the user's folder. If that run opens what the machine does not have, nothing
    is compared: the verdict is NOT COMPARED and names it. The recordings stay in
    `runs/<id>/parity/{here,there}`. Raises RunFailed if a side fails and NOT COMPARED stops the run, and Busy
    if another run's data are where those of this one belong.
    """
    profile = session.profile
    steps = counted(profile.parity.steps, "step")
    session.progress.say(f"Parity: the first {steps}, here and there")
    folder = session.project.run(run_id) / "parity"
    observed = f"{run_id}.parity-{secrets.token_hex(3)}"
    python = str(session.local().python)
    begun = time.time()
    with Reference.of(profile).laid_out(local.base, observed) as laid:
        mine = replace(observed_job(profile, observed, python, run_id), **laid.job(profile.train.command))
        mine = replace(mine, env={**laid.settings, **mine.env, **laid.environment})
        theirs = replace(observed_job(profile, observed, there_python, run_id), trees=trees.there)
        sides = (Observed(HereHost(), local, mine), Observed(session.host, session.agent, theirs))
        with naming_other_run(session):
            failures = _both(sides, laid)
        for side, name in zip(sides, _SIDES, strict=True):
            fetch_recording(side, folder / name)
        _keep_recipe(session, folder / "here", laid, python, options)
    shutil.rmtree(jobs.run_dir(local, observed), ignore_errors=True)
    lacking = _lacking(profile, laid.view, folder, begun)
    if lacking:
        return _nothing_compared(profile, lacking)
    verdict = _judged(session, local, python, folder)
    if not failures or verdict.verdict != Conclusion.NOT_COMPARED:
        return verdict
    said = "\n".join(failures)
    if profile.parity.on_mismatch.stops(Conclusion.NOT_COMPARED):
        without = options.command(profile, local_parity=False)
        again = f"{options.command(profile)}    # once fixed; or, without the comparison: {without}"
        raise RunFailed(said, next_command=again)
    return replace(verdict, detail=said)


def _keep_recipe(session: Session, recorded: Path, laid: LaidOut, python: str, options: RunOptions) -> None:
    """Store beside the recording of this computer how to repeat it, and the small files that it used, while
    its copy exists. Of `train.env`, only what the profile's file has literally: other values may be secrets.
    """
    train, leased = session.profile.train, session.ledger.lease().profile
    said = (*of_environment(os.environ), *leased["overrides"], *options.overrides)
    withheld = {*map(name_of, secrets_of(said)), *leased.get("withheld", ())}
    own = {
        name: value
        for name, value in train.env.items()
        if isinstance(value, str) and f"train.env.{name}" not in withheld
    }
    params = {name: value for name, value in train.environment().items() if name.startswith(PARAMETER)}
    cwd = laid.view.project
    data = {tree.target: tree.source.resolve() for tree in session.profile.data}
    write_recipe(
        recorded, train.command, cwd, python, given={**params, **own}, data=data, seen=laid.view.pairs
    )
    keep_inputs(recorded, train.command, cwd)


def mismatch(
    session: Session, run_id: str, verdict: Mapping[str, Any], options: RunOptions
) -> ParityMismatch:
    """Return the error for a verdict (as JSON) that stops the run."""
    profile, machine = session.profile, session.machine
    again = options.command(profile)
    runs_on = f"{machine.id} is still running, at ${machine.price:.2f}/h."
    if verdict["undeclared"]:
        found = [Undeclared(**{**each, "path": Path(each["path"])}) for each in verdict["undeclared"]]
        return DataNotSent(
            f"{verdict['detail']}\n{verdict['fix']}",
            exists=runs_on,
            next_command=f"{declare_command(found, profile.path)} && {again}",
        )
    warn = f"{again} --set 'parity.on_mismatch={{{key_of(verdict['verdict'])}: warn}}'"
    as_it_is = "" if options.same_as else f"; or, to continue anyway: {warn}"
    return ParityMismatch(
        f"{verdict['verdict']}: {verdict['detail']}",
        exists=f"{runs_on} Both recordings are in {session.project.run(run_id) / 'parity'}.",
        next_command=f"{again}    # once fixed{as_it_is}",
    )


# ---------------------------------------------------------------- what the machine lacks


def _lacking(profile: Profile, view: View, folder: Path, begun: float) -> tuple[Undeclared, ...]:
    opened = read_opened(folder / "here/observe")
    if not opened:
        return ()
    there = frozenset(read_opened(folder / "there/observe").digests.values())
    return undeclared(opened, sent_of(profile), view, outputs=profile.train.outputs, begun=begun, there=there)


def _nothing_compared(profile: Profile, found: tuple[Undeclared, ...]) -> Verdict:
    detail = f"{undeclared_sentence(found)} The machine does not have it, so nothing was compared."
    fix = f"Add to {profile.path.name}:\n{profile_lines(found, profile.path)}"
    return Verdict(
        Conclusion.NOT_COMPARED, detail=detail, fix=fix, undeclared=tuple(each.as_json() for each in found)
    )


# ---------------------------------------------------------------- the two runs


def _both(sides: Sequence[Observed], laid: LaidOut) -> list[str]:
    """Run both sides to their end; returns the failures. Raises PathTaken."""
    mine = sides[0]
    try:
        ended = run_observed(sides)
    except (KeyboardInterrupt, PathTaken):
        shutil.rmtree(jobs.run_dir(mine.agent, mine.job.run_id), ignore_errors=True)
        raise
    told = [_failure(side, each) for side, each in zip(_SIDES, ended, strict=True)]
    if told[0] and laid.refused():
        told[0] = (
            f"The script writes to {laid.refused()}, which its first steps on this computer may not change: "
            f"they may write below the project and in temporary folders.\n{told[0]}"
        )
    return [text for text in told if text]


def _failure(side: str, ended: Ended) -> str:
    if ended.is_recorded:
        return ""
    log = ended.output.decode(errors="replace")
    tail = "\n".join("    " + line for line in log.strip().splitlines()[-12:])
    place = "on this computer" if side == "here" else "on the machine"
    return f"The script {ending(ended.reason)} {place}:\n{tail}"


# ---------------------------------------------------------------- the verdict


def _judged(session: Session, local: Agent, python: str, folder: Path) -> Verdict:
    """Compare both recordings.

    The cause of a difference is searched for on this computer, within the budget.
    """
    here, there = read(folder / "here"), read(folder / "there")
    named = named_alike(here.environment, there.environment)
    here, there = (replace(side, environment=facts) for side, facts in zip((here, there), named, strict=True))
    verdict = parity.judge(here, there, HERE_AND_THERE)
    profile = session.profile
    if not profile.parity.confirm or not is_confirmable(verdict, here, there):
        return verdict
    reference = Reference.of(profile)
    known = Recipe(profile.train.command, reference.project, python, acting_now(), host=this_host())
    to_imitate, unsent = imitation_of(folder / "there", there), not_sent(sent_of(profile))
    sides = Sides(here, there, "A", to_imitate, unsent=unsent, names=HERE_AND_THERE)
    with Replayer(
        known,
        reference,
        local,
        here.environment,
        len(here.steps),
        light_steps(verdict, here),
        profile.train.environment(),
    ) as runs:
        return confirm(sides, verdict, runs, profile.parity.budget, session.progress)


def as_json(verdict: Verdict) -> dict[str, Any]:
    """Return the `parity` object of `run.json`."""
    return verdict.as_json()
