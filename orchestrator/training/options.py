"""The options of a run, and the command that repeats a call with them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from orchestrator.ledger import FIRST, Draft, Retried
from orchestrator.model import Fingerprint, RunRecord

if TYPE_CHECKING:
    from orchestrator.profile import Profile
    from orchestrator.session.session import Session


class Node(Protocol):
    """One machine of a run that several machines train together."""

    @property
    def attempt(self) -> int:
        """The number of the attempt, which is the same on all machines."""

    def environment(self) -> Mapping[str, str]:
        """Return the variables by which the program finds the other machines."""

    def note_fingerprint(self, fingerprint: Fingerprint) -> None:
        """Note the packages that are installed on this machine."""

    def wait(self, session: Session, run_id: str, draft: Draft | None) -> Draft | None:
        """Wait until all machines are ready to start; returns the draft, with what was compared meanwhile.

        Raises an error if one is not ready.
        """


@dataclass(frozen=True)
class RunOptions:
    """How to make a run. `seen`: the last attempt at its id that had ended when the call started.

    `overrides`: what this call changes in the profile, or must pass again. `verb`: the verb that is carried
    out. `new_data`: accept changed objects of buckets. `retried`: how often this call, or an interrupted one,
    has retried the run by itself. `same_as`: the run that is repeated; if the inputs differ, no run is
    started. `path` (of the profile), `run_id` and `lease`: as the call names them, else "". `asked`: the
    options as they were given, if the call has changed them since. `words`: the command that repeats the
    call, if it is not `verb` with these options. `node`: the machine, if several machines train together.
    `queued`: the run begins when the runs before it on its machine have ended. `new_id`: the id was made by
    this call, so no machine has a run of that id.
    """

    local_parity: bool = False
    resume_proof: bool = False
    detach: bool = False
    strict: bool = False
    retry_failed: bool = False
    parallel: bool = False
    seen: RunRecord | None = None
    overrides: Sequence[str] = ()
    verb: str = "train"
    retried: Retried = FIRST
    new_data: bool = False
    same_as: RunRecord | None = None
    path: str = ""
    run_id: str = ""
    lease: str = ""
    asked: RunOptions | None = None
    words: str = ""
    node: Node | None = None
    queued: bool = False
    new_id: bool = False

    def command(self, profile: Profile | None = None, run_id: str = "", **changed: Any) -> str:
        """Return the command that repeats these options, except those `changed`, with gaps for values that
        may be secrets. `profile`: named if the options name none. `run_id`: of a run that the next call has
        to continue; default: as the call names it.
        """
        if self.words:
            return self.words
        asked = replace(self.asked or self, **changed)
        path = asked.path or (str(profile.path) if profile else "")
        of = [path] if path and asked.verb == "run" else []
        named = ["--run-id", name] if (name := run_id or asked.run_id) else []
        lease = ["--lease", asked.lease] if asked.lease else []
        return shlex.join(["orch", asked.verb, *of, *named, *asked._flags(), *lease]) + sets(asked.overrides)

    def anew(self, profile: Profile) -> str:
        """Return the command that trains again after this run failed; under its id, if the call names it."""
        asked = self.asked or self
        return self.command(profile, retry_failed=asked.retry_failed or bool(asked.run_id))

    def _flags(self) -> list[str]:
        """Return the options that are not at their default. `run` retries by default, `train` does not."""
        given = {
            "--local-parity": self.local_parity,
            "--resume-proof": self.resume_proof,
            "--detach": self.detach,
            "--strict": self.strict,
            "--retry-failed": self.retry_failed and self.verb != "run",
            "--no-retry-failed": not self.retry_failed and self.verb == "run",
            "--parallel": self.parallel,
            "--new-data": self.new_data,
        }
        return [flag for flag, is_given in given.items() if is_given]


def sets(overrides: Sequence[str]) -> str:
    """Return overrides as the end of a command line, with gaps for values that may be secrets."""
    from orchestrator.profile.overrides import name_of, secrets_of, without_secrets

    kept = "".join(f" --set {shlex.quote(each)}" for each in without_secrets(overrides))
    return kept + "".join(f" --set {name_of(each)}=…" for each in secrets_of(overrides))
