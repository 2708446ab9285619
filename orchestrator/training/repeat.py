"""Restore the inputs of a recorded run (its profile, lock, data and code) and compare them with its
record.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import UsageError
from orchestrator.hosts.atomic import atomic_write
from orchestrator.ledger import Lease
from orchestrator.model import Progress, RunRecord
from orchestrator.model.answers import LONG
from orchestrator.model.counted import counted
from orchestrator.model.files import regular_bytes
from orchestrator.profile import Profile, load
from orchestrator.profile.overrides import PREFIX, is_set, name_of, of_environment, secrets_of
from orchestrator.providers.local.store import state_home
from orchestrator.runs import attempts, inputs, kept_code
from orchestrator.session.project import Project
from orchestrator.session.session import read_lock
from orchestrator.stack import existing_environment
from orchestrator.training.one_run import other_machine
from orchestrator.training.options import RunOptions

FOLDER = "reruns"
_NAMED = 5
_NOTHING = "Nothing was started or rented."


@dataclass(frozen=True)
class RepeatedRun:
    """A run that can be repeated. `overrides`: everything that `profile` needs beside its file."""

    first: RunRecord
    name: str
    profile: Profile
    overrides: tuple[str, ...]

    @property
    def words(self) -> str:
        """Return the command that continues the repeated run."""
        withheld = self.first.request["withheld"] if self.first.request else ()
        given = "".join(f" --set {name}=…" for name in withheld)
        return f"orch rerun {self.first.run_id} --run-id {self.name}{given}"

    @property
    def secrets(self) -> tuple[str, ...]:
        return secrets_of(self.overrides)

    def options(self, project: Project, overrides: Sequence[str]) -> RunOptions:
        """Return the options of the repeated run, with the checks that the first run had."""
        request = self.first.request
        return RunOptions(
            local_parity=request["local_parity"] if request else self.first.parity is not None,
            retry_failed=True,
            seen=attempts.latest_attempt(project.run(self.name)),
            overrides=tuple(overrides),
            verb="rerun",
            same_as=self.first,
            words=self.words,
        )


@contextmanager
def restored(
    project: Project, first: RunRecord, name: str, given: Sequence[str], tell: Progress
) -> Iterator[RepeatedRun]:
    """Restore the inputs of a run for the block; its code is removed afterwards. Raises UsageError if
    something is no longer available.
    """
    key = hashlib.sha256(os.fsencode(project.root) + b"\0" + name.encode()).hexdigest()[:16]
    scratch = state_home(os.environ) / FOLDER / key
    shutil.rmtree(scratch, ignore_errors=True)
    kept = project.state / FOLDER / name
    try:
        with _kept_unless_refused(kept):
            prepared = _prepared(project, first, name, given, scratch / "code", tell)
        yield prepared
        shutil.rmtree(kept, ignore_errors=True)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def _kept_unless_refused(folder: Path) -> Iterator[None]:
    """Remove the folder if the block raises, unless an earlier call created it and may have leased a machine
    with it.
    """
    known = folder.exists()
    try:
        yield
    except BaseException:
        if not known:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _prepared(
    project: Project, first: RunRecord, name: str, given: Sequence[str], code: Path, tell: Progress
) -> RepeatedRun:
    """Return the restored run, with its code in the new folder `code`. Raises UsageError."""
    _require_environment(first, given)
    path, then, said = _profile_then(project, first, name, given)
    _require_inherited(first, then)
    _require_data(first, then)
    overrides = (*said, *_placed(then, _code(project, first, then, code, tell)))
    profile = load(path, overrides=overrides, files=True)
    _require_inputs(project, first, profile)
    return RepeatedRun(first, name, profile, overrides)


def _refused(first: RunRecord, why: str, next_command: str) -> UsageError:
    return UsageError(
        f"{first.run_id} cannot be repeated: {why}.",
        exists=f"{_NOTHING} Its record is in {first.folder}.",
        next_command=next_command,
    )


# ---------------------------------------------------------------- the shell


def _require_environment(first: RunRecord, given: Sequence[str]) -> None:
    """Refuse ORCH_SET_… variables that the run did not have, and values that are missing."""
    request = first.request
    withheld, recorded = (request["withheld"], request["overrides"]) if request else ([], [])
    names = [name for name in os.environ if name.startswith(PREFIX)]
    other = [
        name
        for name in sorted(names)
        for flag in of_environment({name: os.environ[name]})
        if flag not in recorded and name_of(flag) not in withheld
    ]
    if other:
        unset = " ".join(f"-u {name}" for name in other)
        raise _refused(first, f"it ran without {', '.join(other)}", f"env {unset} orch rerun {first.run_id}")
    missing = [name for name in withheld if not is_set(name, given, os.environ)]
    if missing:
        raise _refused(
            first,
            f"it was given {', '.join(missing)}, and such a value may be a secret, so it is not stored",
            f"orch rerun {first.run_id} {' '.join(f'--set {name}=…' for name in missing)}",
        )


def _require_inherited(first: RunRecord, then: Profile) -> None:
    """Refuse a shell whose result-changing variables differ from those that the run inherited."""
    before = (first.stack or {}).get("inherited")
    if before is None:
        return
    now = then.train.inherited()
    wrong = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    if wrong:
        words = [f"-u {name}" for name in wrong if name not in before]
        words += [shlex.quote(f"{name}={before[name]}") for name in wrong if name in before]
        said = ", ".join(f"{name} was {before.get(name) or 'not set'}" for name in wrong)
        raise _refused(
            first, f"variables of this shell change results ({said})",
            f"env {' '.join(words)} orch rerun {first.run_id}",
        )  # fmt: skip


# ---------------------------------------------------------------- the profile


def _profile_then(
    project: Project, first: RunRecord, name: str, given: Sequence[str]
) -> tuple[Path, Profile, tuple[str, ...]]:
    """Return a copy of the profile, the profile as it was read at its original place, and its overrides."""
    place, said, text = _profile_text(project, first)
    copy = project.state / FOLDER / name / place.name
    project.ignore_state()
    atomic_write(copy, text, 0o600)
    overrides = (*said, *given)
    return copy, load(copy, overrides=overrides, at=place), overrides


def _profile_text(project: Project, first: RunRecord) -> tuple[Path, tuple[str, ...], bytes]:
    """Return the profile's original path, the overrides, and its text."""
    request = first.request
    if request is None:
        return _profile_of_lease(project, first)
    place = Path(os.path.normpath(project.root / request["profile"]))
    for text in (kept_code.kept_profile(first.folder), _text(place)):
        if text is not None and hashlib.sha256(text).hexdigest() == request["profile_sha256"]:
            return place, tuple(request["overrides"]), text
    raise _refused(
        first,
        f"{place} has changed since, or is gone, and was not kept with the record, because git ignores it",
        f"orch report {first.run_id}    # shows what it had",
    )


def _profile_of_lease(project: Project, first: RunRecord) -> tuple[Path, tuple[str, ...], bytes]:
    """Return the profile of the run's lease, for records of older versions."""
    lease = next((each for each in reversed(project.leases()) if first.run_id in each.runs), None)
    place = Path(str(lease.profile["path"])) if lease else None
    text = _text(place) if place else None
    if lease is None or place is None or text is None:
        raise _refused(first, "its profile is not on this computer", project.up_command)
    return place, tuple(lease.profile["overrides"]), text


def _text(path: Path) -> bytes | None:
    try:
        return regular_bytes(path.resolve(), LONG)
    except (OSError, ValueError):
        return None


# ---------------------------------------------------------------- code, lock and data


def _require_data(first: RunRecord, then: Profile) -> None:
    gone = [each for each in then.data if not each.bucket and not each.source.exists()]
    if not gone:
        return
    made = gone[0].prepare
    folder = shlex.quote(str(then.code.path))
    again = f"orch rerun {first.run_id}    # once the data are back at {gone[0].source}"
    next_command = f"cd {folder} && {shlex.join(made)}" if made else again
    raise _refused(first, f"its data {', '.join(str(each.source) for each in gone)} are gone", next_command)


def _code(project: Project, first: RunRecord, then: Profile, target: Path, tell: Progress) -> Path:
    """Return a folder with the run's code: `target`, or the project if no list of its files was kept."""
    assert first.code is not None
    entries = kept_code.kept_tree(first.folder)
    if entries is None:
        now = inputs.inputs_of(project, then)
        if now.code_digest == first.code["digest"]:
            return then.code.path
        changed = inputs.changed_code(first, now)
        raise _refused(
            first,
            f"the code has changed since, and was not kept with its record: {changed}",
            f"orch report {first.run_id}    # shows its digest",
        )
    git = first.code.get("git")
    revision = git["revision"] if git else ""
    missing = kept_code.rebuild(first.folder, entries, then.code.path, revision, target)
    if missing:
        raise _incomplete(first, missing, revision)
    tell.say(f"The code of {first.run_id}, {counted(len(entries), 'path')}, was written to {target}")
    return target


def _incomplete(first: RunRecord, missing: Sequence[str], revision: str) -> UsageError:
    assert first.code is not None
    reasons = {each["path"]: _WHY.get(each["why"], each["why"]) for each in first.code.get("not_kept", [])}
    told = [f"{path} ({reasons[path]})" if path in reasons else path for path in missing]
    more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
    where = (
        f"neither in the project, nor beside the record, nor in git at {revision[:12]}"
        if revision
        else "not on this computer"
    )
    fetch = f"git fetch origin {revision}    # then the same command again"
    lost = revision and any(path not in reasons for path in missing)
    return _refused(
        first,
        f"files of its code cannot be restored: {', '.join(told[:_NAMED])}{more}: {where}",
        fetch if lost else f"orch rerun {first.run_id}    # once {shlex.quote(missing[0])} is as it was",
    )


_WHY: Mapping[str, str] = {
    kept_code.Why.IGNORED: "not kept, because git ignores it",
    kept_code.Why.SECRET: "not kept, because by its name it may hold secrets",
    kept_code.Why.TOO_LARGE: "too large to keep",
    kept_code.Why.CHANGED: "it changed while it was sent",
}


def _placed(then: Profile, code: Path) -> Iterator[str]:
    """Return the overrides that make the copied profile find all paths from its new place."""

    def put(key: str, value: object) -> str:
        return f"{key}={json.dumps(value if isinstance(value, list) else str(value))}"

    yield put("code.path", code)
    yield put("code.ignore", ["!*"] if code != then.code.path else list(then.code.ignore))
    if lock := then.stack.lock:
        moved = code / lock.relative_to(then.code.path) if lock.is_relative_to(then.code.path) else lock
        yield put("stack.lock", moved if moved.is_file() else lock)
    if python := _python(then):
        yield put("stack.python", python)
    for number, each in enumerate(then.data):
        if not each.bucket:
            yield put(f"data.{number}.source", each.source)
            yield put(f"data.{number}.target", each.target)


def _python(then: Profile) -> Path | None:
    """Return the interpreter of the user's own environment; None if orch creates one from the lock."""
    found = then.stack.python
    if found is None and then.stack.lock is not None and then.stack.lock.is_file():
        own = existing_environment(read_lock(then), then.code.path)
        found = own.python if own is not None and not own.made else None
    return found


def _require_inputs(project: Project, first: RunRecord, profile: Profile) -> None:
    found = inputs.differences(first, inputs.inputs_of(project, profile))
    if found:
        raise _refused(
            first,
            f"not everything is as it was then: {'; '.join(found)}",
            f"orch rerun {first.run_id}    # once it is restored; or, with what is there now: orch train",
        )


# ---------------------------------------------------------------- the machine


def require_machine(first: RunRecord, leased: Profile, wanted: Profile, lease: Lease) -> None:
    """Refuse a leased machine that is different from what the run's profile asks for."""
    found = other_machine(leased, wanted)
    if found:
        raise UsageError(
            f"{first.run_id} cannot be repeated on the machine of {lease.id}: {', '.join(found)} differ "
            "in its profile.",
            exists=f"That machine is still running, at ${lease.price:.2f}/h.",
            next_command=f"orch down {lease.id} && orch rerun {first.run_id}",
        )
