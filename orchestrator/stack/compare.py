"""Compare two environments and a lock: list every difference, and whether it is expected. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from packaging.utils import canonicalize_name

from orchestrator.model import Difference, Distribution, Fingerprint, Lock, Pin, is_allowed
from orchestrator.model.counted import counted
from orchestrator.stack import cuda_free
from orchestrator.stack.gpu_lock import OLDEST_DRIVER
from orchestrator.stack.target import applicable
from orchestrator.stack.versions import same_version

_TOOLS = frozenset({"pip", "setuptools", "wheel", "uv"})
"""Packages that a new environment has by default: compared only if the lock names them."""

_ROUNDING = "rounding may differ; parity decides"
_PLATFORM = {
    "os": "another system",
    "kernel": "another kernel",
    "libc": "another C library: its mathematics may round differently; parity decides",
    "system": "another system",
    "machine": f"another processor architecture: {_ROUNDING}",
    "cpu_model": f"another CPU: {_ROUNDING}",
    "cpu_flags": f"another CPU: {_ROUNDING}",
    "threads": f"thread pools follow the number of processors: {_ROUNDING}",
    "cpu_limit": "another machine size",
    "memory_limit": "another machine size",
    "memory": "another machine size",
    "timezone": "it changes local times only",
    "encoding": "it changes text only",
    "locale": "it changes text only",
}
_GPU = {
    "gpu": f"another GPU: {_ROUNDING}",
    "gpu_memory": "another GPU",
    "driver": "another driver; the CUDA libraries of the lock are the same",
    "cuda": "the driver's CUDA; the CUDA libraries of the lock are the same",
}
_IDLE = "CUDA, which is not installed here: there is no NVIDIA driver"
_BUILD = {"build": "the same version, built elsewhere"}

_HARMLESS_VARIABLES = {
    "LANG": "it changes text only",
    "LANGUAGE": "it changes text only",
    "TZ": "it changes local times only",
    "PYTHONUTF8": "it changes text only",
    "TF_CPP_MIN_LOG_LEVEL": "it changes messages only",
    "TF_CPP_MAX_VLOG_LEVEL": "it changes messages only",
    "TF_CPP_VMODULE": "it changes messages only",
    "NVIDIA_DRIVER_CAPABILITIES": "set by the container runtime",
    "NVIDIA_VISIBLE_DEVICES": "it names this machine's own GPUs",
    "CUDA_VISIBLE_DEVICES": "it names this machine's own GPUs",
    "CUDA_CACHE_PATH": "a place for caches",
    "CUDA_HOME": "a place of this machine",
    "CUDA_PATH": "a place of this machine",
    "NVIDIA_REQUIRE_CUDA": "set by the container image",
    "CUDA_VERSION": "set by the container image",
}
_HARMLESS_PREFIXES = {"LC_": "it changes text only"}

_FEW_DIGITS = re.compile(r"[0-9]{1,6}\Z")


def differences(
    lock: Lock, here: Fingerprint, there: Fingerprint, allow: Collection[str] = ()
) -> tuple[Difference, ...]:
    """Return every difference of `there` from the lock and from `here`; undeclared ones first.

    `allow` names differences to accept: "numpy", "package:numpy", "environment:TF_*".
    """
    found = [
        *_from_lock(lock, there),
        *_interpreters(here, there),
        *_packages(lock, here, there),
        *_facts("platform", _PLATFORM, here, there),
        *_facts("driver", _GPU, here, there),
        *_old_driver(there),
        *_variables(here.environment, there.environment),
        *_strays(here),
    ]
    allowed = [_allowed(difference, allow) for difference in found]
    return tuple(sorted(allowed, key=lambda d: (d.declared, d.kind, d.name)))


def _allowed(difference: Difference, allow: Collection[str]) -> Difference:
    if difference.declared or not is_allowed(difference.kind, difference.name, allow):
        return difference
    return replace(difference, declared=True, reason="allowed by the profile")


# ---------------------------------------------------------------- against the lock


def read_back(lock: Lock, there: Fingerprint) -> list[str]:
    """Return sentences on how `there` differs from the lock; none if it does not."""
    return [
        f"{d.name}: locked {d.here or 'not at all'}, installed {d.there or 'not at all'}"
        for d in _from_lock(lock, there)
    ]


def altered(there: Fingerprint) -> list[str]:
    """Return sentences that name installed files which differ from those of their package."""
    return [
        f"{d.name} {d.version}: {path} is not what the package brought"
        for d in there.distributions
        for path in d.altered
    ]


def _markers(fingerprint: Fingerprint) -> dict[str, str]:
    prefix = "marker."
    found = {name: value for name, value in fingerprint.facts.items() if name.startswith(prefix)}
    return {name.removeprefix(prefix): value for name, value in found.items()}


def _pins(lock: Lock, fingerprint: Fingerprint) -> dict[str, Pin]:
    return {pin.name: pin for pin in applicable(lock.pins, _markers(fingerprint))}


def _idle(lock: Lock, here: Fingerprint) -> frozenset[str]:
    """Return the pins that `here` does not install, because it has no driver for them."""
    return cuda_free.idle(tuple(_pins(lock, here).values()), here.facts.get("driver"))


def _from_lock(lock: Lock, there: Fingerprint) -> Iterator[Difference]:
    pins = _pins(lock, there)
    installed = {d.name: d for d in there.distributions if d.name in pins or d.name not in _TOOLS}
    for name in sorted({*pins, *installed}):
        locked = pins[name].version if name in pins else None
        found = installed[name].version if name in installed else None
        if locked is None or found is None or not same_version(locked, found):
            yield Difference(
                "lock", name, locked, found, False, "the machine does not have what the lock says"
            )


def foreseen(
    lock: Lock, here: Fingerprint, there: Mapping[str, str], allow: Collection[str] = ()
) -> tuple[Difference, ...]:
    """Return the undeclared differences that `differences` would find, before there is a machine:
    packages here against the lock, and variables here against `there`, the variables that the job will
    have.
    """
    found = [*_unlike_lock(lock, here), *_variables(here.environment, there)]
    return tuple(d for d in (_allowed(difference, allow) for difference in found) if not d.declared)


def _unlike_lock(lock: Lock, here: Fingerprint) -> Iterator[Difference]:
    pins, anywhere, idle = _pins(lock, here), {pin.name for pin in lock.pins}, _idle(lock, here)
    projects = set(map(canonicalize_name, filter(None, here.facts.get("projects", "").split(","))))
    mine = {d.name: d for d in here.distributions}
    for name in sorted({*pins, *mine} - projects):
        one, locked = mine.get(name), pins.get(name)
        versions = (one.version if one else None, locked.version if locked else None)
        if locked and not one:
            reason = _IDLE if name in idle else "locked, but not installed here"
            yield Difference("package", name, *versions, name in idle, reason)
        elif one and not locked and name not in _TOOLS | anywhere:
            yield Difference("package", name, *versions, False, "installed here, but not in the lock")
        elif one and locked and not same_version(one.version, locked.version):
            yield Difference("package", name, *versions, False, "another version")
        elif one and locked and one.altered:
            text = f"altered: {one.altered[0]}"
            yield Difference(
                "package", name, text, None, False, "here a file is not what the package brought"
            )


# ---------------------------------------------------------------- against the local environment


def _interpreters(here: Fingerprint, there: Fingerprint) -> Iterator[Difference]:
    for name, one, other in (
        ("python", here.python, there.python),
        ("implementation", here.facts.get("implementation"), there.facts.get("implementation")),
    ):
        if one != other:
            yield Difference("interpreter", name, one, other, False, "another interpreter")
    if here.python == there.python:
        yield from _facts("interpreter", _BUILD, here, there)


def _packages(lock: Lock, here: Fingerprint, there: Fingerprint) -> Iterator[Difference]:
    mine, theirs = {d.name: d for d in here.distributions}, {d.name: d for d in there.distributions}
    locked_here, locked_there, idle = _pins(lock, here), _pins(lock, there), _idle(lock, here)
    projects = set(map(canonicalize_name, filter(None, here.facts.get("projects", "").split(","))))
    for name in sorted({*mine, *theirs}):
        locked = name in locked_here or name in locked_there
        if name in _TOOLS and not locked:
            continue
        one, other = mine.get(name), theirs.get(name)
        if one and other:
            yield from _same_package(one, other, here, there)
        elif other and name in idle:
            yield Difference("package", name, None, other.version, True, _IDLE)
        elif one and name in projects:
            yield Difference(
                "package", name, one.version, None, True, "the project itself: it travels as code"
            )
        else:
            yield _one_sided(name, one, other, name in locked_here, name in locked_there)


def _one_sided(
    name: str, one: Distribution | None, other: Distribution | None, locked_here: bool, locked_there: bool
) -> Difference:
    versions = (one.version if one else None, other.version if other else None)
    if locked_here != locked_there:
        return Difference(
            "package", name, *versions, True, "the lock has it for one of the two platforms only"
        )
    if one is None:
        return Difference("package", name, *versions, False, "locked, but not installed here")
    why = "installed here, but not in the lock" if not locked_here else "locked, but not on the machine"
    return Difference("package", name, *versions, False, why)


def _same_package(
    one: Distribution, other: Distribution, here: Fingerprint, there: Fingerprint
) -> Iterator[Difference]:
    name = one.name
    for side, distribution in (("here", one), ("there", other)):
        if distribution.altered:
            count, first = len(distribution.altered), distribution.altered[0]
            text = f"{counted(count, 'altered file')}: {first}"
            mine, theirs = (text, None) if side == "here" else (None, text)
            reason = f"{side} a file is not what the package brought"
            yield Difference("package", name, mine, theirs, False, reason)
    if not same_version(one.version, other.version):
        yield Difference("package", name, one.version, other.version, False, "another version")
    elif one.record != other.record:
        yield _other_bytes(one, other, here.facts, there.facts)


def _other_bytes(
    one: Distribution, other: Distribution, here: Mapping[str, str], there: Mapping[str, str]
) -> Difference:
    """Return the difference of two installations of one version with different files: another wheel, or
    changed files.
    """
    tags = here.get(f"wheel.{one.name}"), there.get(f"wheel.{one.name}")
    pair = (_summary(one, tags[0]), _summary(other, tags[1]))
    if not one.record or not other.record:
        return Difference("package", one.name, *pair, True, "one side keeps no record of its files")
    if tags[0] != tags[1]:
        return Difference(
            "package", one.name, *pair, True, "the wheel of the same version for another platform"
        )
    return Difference("package", one.name, *pair, False, "the same version, but other files")


def _summary(distribution: Distribution, tag: str | None) -> str:
    return f"{distribution.version} {tag or ''} {distribution.record[:12]}".replace("  ", " ").strip()


def _facts(
    kind: str, reasons: Mapping[str, str], here: Fingerprint, there: Fingerprint
) -> Iterator[Difference]:
    for name, reason in reasons.items():
        one, other = here.facts.get(name), there.facts.get(name)
        if one != other:
            yield Difference(kind, name, *_shortened(name, one, other), True, reason)


def _shortened(name: str, one: str | None, other: str | None) -> tuple[str | None, str | None]:
    """Return the two values. Of two long lists of CPU flags, return the flags that only one side has."""
    if name != "cpu_flags" or one is None or other is None:
        return one, other
    mine, theirs = set(one.split()), set(other.split())
    return " ".join(sorted(mine - theirs)) or "fewer", " ".join(sorted(theirs - mine)) or "fewer"


def _old_driver(there: Fingerprint) -> Iterator[Difference]:
    """Yield a driver that is too old for this TensorFlow's CUDA: the job would silently run on the CPU."""
    wanted, driver = there.facts.get("tensorflow.cuda_version", ""), there.facts.get("driver", "")
    numbers = [int(part) for part in driver.split(".") if _FEW_DIGITS.match(part)]
    major = wanted.split(".")[0]
    oldest = OLDEST_DRIVER.get(int(major)) if _FEW_DIGITS.match(major) else None
    if oldest and len(numbers) >= 2 and tuple(numbers[:2]) < oldest:
        reason = f"TensorFlow is built for CUDA {wanted}, which needs driver {oldest[0]}.{oldest[1]} or newer"
        yield Difference("driver", "cuda-driver", None, driver, False, reason)


def _variables(here: Mapping[str, str], there: Mapping[str, str]) -> Iterator[Difference]:
    for name in sorted({*here, *there}):
        if here.get(name) == there.get(name):
            continue
        harmless = _HARMLESS_VARIABLES.get(name) or next(
            (reason for prefix, reason in _HARMLESS_PREFIXES.items() if name.startswith(prefix)), ""
        )
        reason = harmless or "it can change numbers; set it in the profile's train.env for both sides"
        yield Difference("environment", name, here.get(name), there.get(name), bool(harmless), reason)


def _strays(here: Fingerprint) -> Iterator[Difference]:
    for name in filter(None, here.facts.get("strays", "").split(",")):
        reason = "it belongs to no installed package; where the script imports it, copy it into the project"
        yield Difference("package", name, "a file or folder", None, True, reason)
