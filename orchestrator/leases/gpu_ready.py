"""Check that a machine's driver and packages use the GPUs that it was rented for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from orchestrator import stack
from orchestrator.errors import StackError
from orchestrator.leases.gpu_lock import ALLOWED, keras_backend, target_pins, wants_nvidia
from orchestrator.model import Pin, is_allowed
from orchestrator.model.answers import Between, Like, Malformed, Most, decoded, malformed
from orchestrator.model.counted import counted
from orchestrator.model.plain import plain
from orchestrator.runtime.attest.facts import environment as acting_variables
from orchestrator.session.session import Session
from orchestrator.stack.gpu_lock import OLDEST_DRIVER, able, cuda_of

_LISTING_S = 1800.0
_SMI = ("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
_VERSION = re.compile(rb"\A\s*(\d{1,4})\.(\d{1,4})")


class Cause(StrEnum):
    """Why a framework lists fewer GPUs than wanted, as `runtime.attest.gpus` determines."""

    NONE = ""
    HIDDEN = "hidden"
    NO_DRIVER = "no-driver"
    OLD_DRIVER = "old-driver"
    DRIVER_FAILS = "driver-fails"
    SHADOWED = "shadowed"
    NO_LIBRARY = "no-library"
    LIBRARY_FAILS = "library-fails"
    FRAMEWORK_FAILS = "framework-fails"


_WORDS = {
    Cause.HIDDEN: "CUDA_VISIBLE_DEVICES={!r} hides them; remove it from train.env",
    Cause.NO_DRIVER: "the driver's library libcuda.so.1 does not load: {}",
    Cause.OLD_DRIVER: "the driver serves CUDA {} at most, and the lock pins CUDA {cuda}; name an `image` "
    "with a newer driver, or lock packages for an older CUDA",
    Cause.DRIVER_FAILS: "the driver does not start: cuInit returns {}",
    Cause.SHADOWED: "LD_LIBRARY_PATH={} puts other CUDA libraries before those of the lock; without it they "
    'are listed. Set LD_LIBRARY_PATH: "" in train.env',
    Cause.NO_LIBRARY: "none of the lock's CUDA libraries is installed",
    Cause.LIBRARY_FAILS: "a CUDA library of the lock does not load: {}",
    Cause.FRAMEWORK_FAILS: "driver and CUDA libraries load; its message: {}",
}


@dataclass(frozen=True)
class Listing:
    """The answer of the verb `gpus`: GPUs by framework, and the first framework that lists too few."""

    listed: Mapping[str, Annotated[int, Between(0, 4096)]]
    framework: Annotated[str, Most(40)]
    cause: Annotated[str, Like("|".join(Cause))]
    detail: Annotated[str, Most(1000)]


def require_driver(session: Session) -> None:
    """Raise StackError if the driver is too old for the CUDA that the lock pins.

    Needs no installed packages.
    """
    pins = _pins(session)
    oldest = OLDEST_DRIVER.get(cuda_of(pins) or 0)
    found = _VERSION.match(session.host.run(_SMI, timeout=60).stdout) if oldest else None
    if oldest and found and (int(found[1]), int(found[2])) < oldest:
        has, needs = f"{int(found[1])}.{int(found[2])}", f"{oldest[0]}.{oldest[1]}"
        raise _unused(
            session,
            f"The driver of {session.machine.id} is {has}, and CUDA {cuda_of(pins)}, which the lock pins, "
            f"needs {needs} or newer. Name an `image` with such a driver, or lock packages for an older "
            "CUDA.",
        )


def require_listed(session: Session, installed: stack.Installed) -> None:
    """Raise StackError, with the cause, if a framework of the lock does not list the profile's GPUs."""
    pins, need = _pins(session), session.profile.need()
    frameworks = able(pins, need.arch or "x86_64", keras_backend(session.profile))
    if need.accelerator is None or not frameworks:
        return
    want, cuda = int(need.accelerator.count.value), cuda_of(pins) or 0
    session.progress.say(f"Checking that {' and '.join(frameworks)} can use the GPUs")
    argv = ("gpus", "--want", str(want), "--cuda", str(cuda), *frameworks)
    done = session.host.run(
        ("env", *_variables(session), installed.python, *session.agent.argv(*argv)[1:]), timeout=_LISTING_S
    )
    found = parse_listing(done.stdout, session.host.name)
    cause = Cause(found.cause)
    if cause is not Cause.NONE:
        why = _WORDS[cause].format(plain(found.detail), cuda=cuda)
        raise _unused(
            session,
            f"{found.framework} lists {found.listed.get(found.framework, 0)} of {counted(want, 'GPU')} on "
            f"{session.machine.id}: {why}.",
        )


def parse_listing(text: bytes, name: str) -> Listing:
    """Parse the answer of the verb `gpus`. Raises MalformedAnswer for anything else."""
    try:
        return decoded(Listing, text)
    except Malformed as error:
        raise malformed(name, "`gpus`", str(error)) from None


def _pins(session: Session) -> Sequence[Pin]:
    """The pins for the machine; () if its GPUs are not NVIDIA's or may stay idle."""
    profile = session.profile
    if not wants_nvidia(profile) or is_allowed("lock", ALLOWED, profile.stack.allow):
        return ()
    return target_pins(profile, session.lock())


def _variables(session: Session) -> tuple[str, ...]:
    """NAME=VALUE of the job's variables that affect which GPUs and libraries it finds; no secrets."""
    job = session.profile.train.environment()
    path = {name: value for name, value in job.items() if name == "LD_LIBRARY_PATH"}
    return tuple(f"{name}={value}" for name, value in {**acting_variables(job), **path}.items())


def _unused(session: Session, why: str) -> StackError:
    machine = session.machine
    return StackError(
        f"{why} Training would run on its CPU.",
        exists=f"{machine.id} is still running, at ${machine.price:.2f}/h, until its deadline.",
        next_command=f"orch down && {session.ledger.lease().up_command}",
    )
