"""The resume proof: before the long run, the command is killed after a checkpoint and resumed here."""

from __future__ import annotations

import json
import shlex

from orchestrator.errors import ResumeRefused, UsageError
from orchestrator.lint import checkpoint_folders
from orchestrator.model import Agent, ResumeCheck
from orchestrator.model.resume import Resumed
from orchestrator.profile import Profile
from orchestrator.profile.command import script_of
from orchestrator.profile.start_command import read_text
from orchestrator.reads.reference import Reference
from orchestrator.session.session import Session

_WILD = frozenset("*?[")


def require_checkpoints(profile: Profile, again: str) -> None:
    """Raise UsageError if the profile names no checkpoints. `again`: the command that repeats the call."""
    if not profile.train.checkpoints:
        raise UsageError(
            f"{profile.path.name} names no train.checkpoints, so there is nothing to resume from.",
            exists="This call sent and started nothing.",
            next_command=f"{again} {_checkpoints_of(profile)}",
        )


def _checkpoints_of(profile: Profile) -> str:
    """Return the option that names the folders from which the script resumes, as far as it names them."""
    script = script_of(profile.train.command)
    found = checkpoint_folders(read_text(profile.code.path / script)) if script else ()
    if found:
        flag = f"train.checkpoints={json.dumps(list(found), ensure_ascii=False)}"
        return f"--set {shlex.quote(flag)}    # the folders from which {script} resumes"
    return "--set 'train.checkpoints=[FOLDER]'    # FOLDER: where the script saves its checkpoints"


def prove(session: Session, local: Agent) -> ResumeCheck:
    """Run the command in copies of the user's folder, in the stack of the lock: uninterrupted, killed, and
    resumed.
    """
    from orchestrator.resume.check import RESUME_BUDGET, check_in_copies
    from orchestrator.resume.scratch import Command

    profile = session.profile
    session.progress.say(
        "Resume proof: an uninterrupted run, and one that is killed after a checkpoint and resumed, on "
        "this computer"
    )
    reference = Reference.of(profile)
    command = Command(
        tuple(profile.train.command),
        reference.project,
        str(session.local().python),
        profile.train.environment(),
    )
    folders = sorted({_fixed(name) for name in profile.train.checkpoints} - {""})
    return check_in_copies(command, reference, local, folders, RESUME_BUDGET, session.progress.say)


def refusal(session: Session, found: ResumeCheck) -> ResumeRefused:
    """Return the error for a verdict that stops the run."""
    profile, machine = session.profile, session.machine
    lost = found.omissions[0] if found.omissions else None
    names = f": {', '.join(lost.names[:4])}" if lost and lost.names else ""
    known = " (confirmed)" if lost and lost.confirmed else ""
    what = f"not restored: {lost.lost}{names}{known}" if lost else found.why or _WHAT[found.verdict]
    named = [word for name in profile.train.checkpoints for word in ("--checkpoints", name)]
    program, *arguments = profile.train.command
    if program in ("python", "python3"):  # the one with the packages of the lock
        program = str(session.local().python)
    command = shlex.join(["orch", "resume-check", *named, "--", program, *arguments])
    return ResumeRefused(
        f"{found.verdict}: {what}. The run was not started.",
        exists=f"{machine.id} is still running, at ${machine.price:.2f}/h.",
        next_command=f"{command}    # in {profile.code.path}; names the fix. Use fewer epochs to try it",
    )


_WHAT = {
    Resumed.NOT_EXACT: "the resumed run differs from the uninterrupted one",
    Resumed.UNSTABLE: "two uninterrupted runs of the job differ: seed it first",
    Resumed.NO_CHECKPOINT: "it wrote no checkpoint between two steps",
    Resumed.NOT_CHECKED: "the check could not be carried out",
}


def _fixed(name: str) -> str:
    """Return the part of a path or pattern before its first wildcard."""
    kept: list[str] = []
    for part in name.split("/"):
        if _WILD & set(part):
            break
        kept.append(part)
    return "/".join(kept).strip("/")
