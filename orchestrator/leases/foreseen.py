"""Predict stack errors of `train` before a machine is rented."""

from __future__ import annotations

import contextlib

from orchestrator import stack
from orchestrator.errors import NOTHING_CREATED, StackError, StackMismatch
from orchestrator.leases.gpu_lock import require_gpu_lock
from orchestrator.model import Difference
from orchestrator.profile import Profile
from orchestrator.runtime.attest.facts import environment as acting_variables
from orchestrator.session.session import read_lock, told


def _found(profile: Profile, local: stack.LocalStack) -> tuple[Difference, ...]:
    """Differences that `check_stack` would refuse and that are known without a machine."""
    variables = profile.train.environment()
    here = stack.attest_here(local.python, environment=variables)
    return stack.foreseen(read_lock(profile), here, acting_variables(variables), profile.stack.allow)


def foreseen_problems(profile: Profile) -> tuple[str, ...]:
    """Compare the lock with this environment and this shell's variables, as `up` does. Change nothing."""
    if profile.stack.lock is None:
        return ()
    try:
        local = stack.existing_environment(read_lock(profile), profile.code.path, profile.stack.python)
        found = _found(profile, local) if local else ()
    except StackError as error:
        return (f"{error.message} Next: {error.next_command}" if error.next_command else error.message,)
    return tuple(f"`up` will stop: {told(difference)}" for difference in found)


def refuse_idle_gpu(profile: Profile) -> None:
    """Like `require_gpu_lock`; an unreadable lock is reported by `foreseen_problems`."""
    with contextlib.suppress(StackError):
        require_gpu_lock(profile)


def refuse_foreseen(profile: Profile, local: stack.LocalStack) -> None:
    """Raise StackMismatch, before anything is rented, for the differences that are found."""
    found = _found(profile, local)
    if found:
        listed = "\n".join(f"  {told(difference)}" for difference in found)
        names = ", ".join(difference.name for difference in found)
        raise StackMismatch(
            "The machine's stack would differ from the one here, and the profile does not allow "
            f"that:\n{listed}",
            exists=NOTHING_CREATED,
            next_command=f"fix the difference, or allow it by name: stack.allow: [{names}]",
        )
