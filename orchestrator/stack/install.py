"""Install a lock on a machine: exactly, by hash, verified by reading it back, and skipped if it is there
already.

An environment cannot be moved, so it is built in place. It is complete once its marker
<base>/stacks/<digest>.json is written. If a call is killed before that, the next install starts again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from orchestrator.errors import StackError
from orchestrator.hosts.reach import unreachable
from orchestrator.model import Agent, Fingerprint, Host, Lock, Pin, Progress, Silent
from orchestrator.model.answers import LONG, Malformed
from orchestrator.model.counted import counted
from orchestrator.model.progress import notice
from orchestrator.stack.attest import attest, attest_argv, parse_fingerprint
from orchestrator.stack.bootstrap import ask, sh
from orchestrator.stack.compare import altered, read_back
from orchestrator.stack.download import DownloadFailed
from orchestrator.stack.interpreter import Interpreter
from orchestrator.stack.push import push_wheels
from orchestrator.stack.target import Target, applicable, target_of
from orchestrator.stack.wheels import Wheel, cache_home, find_wheels, index_hints

_FORMAT = "1"
_SECONDS = 900.0
"""Limit for the machine to check, or to remove, all files of a stack."""
_DELIVERIES = ("auto", "push", "download")
_READ_MARKER = 'cat "$1" 2>/dev/null || exit 9; echo; shift; exec "$@"'


@dataclass(frozen=True)
class Installed:
    """`python`: the environment's interpreter on the machine. `skipped`: it was there already, unaltered."""

    python: str
    fingerprint: Fingerprint
    skipped: bool


def stack_digest(lock: Lock, interpreter: Interpreter) -> str:
    """Return the name of an environment: a digest of the interpreter and of every pin. Comments in a lock
    do not change it.
    """
    return _named(interpreter.key, lock)


def lock_digest(lock: Lock) -> str:
    """Return a digest of every pin, whatever the interpreter. Comments in a lock do not change it."""
    return _named("", lock)


def _named(key: str, lock: Lock) -> str:
    pins = sorted([pin.name, pin.version, sorted(pin.hashes), pin.marker] for pin in lock.pins)
    return hashlib.sha256(json.dumps([_FORMAT, key, pins]).encode()).hexdigest()[:16]


def install(
    host: Host,
    agent: Agent,
    lock: Lock,
    interpreter: Interpreter,
    *,
    delivery: str = "auto",
    progress: Progress | None = None,
) -> Installed:
    """Install the lock's packages for that machine below <base>/stacks, nothing else, and verify them.

    `delivery`: "push" sends wheels over the connection, "download" has the machine fetch them, "auto" chooses
    by what the machine can reach. Raise StackError if that fails.
    """
    if delivery not in _DELIVERIES:
        raise StackError(f"delivery {delivery!r} is not one of {', '.join(_DELIVERIES)}.")
    progress = progress or Silent()
    place = _Place(host, agent, stack_digest(lock, interpreter))
    known = _already(place, lock, progress)
    if known:
        return Installed(place.python, known, skipped=True)
    target = _target(host, agent, interpreter)
    pins = applicable(lock.pins, target.markers)
    _deliver(place, _Order(lock, pins, target), delivery, progress)
    fingerprint = _proven(place, lock)
    host.put(_marker(place.digest, fingerprint), place.marker)
    return Installed(place.python, fingerprint, skipped=False)


@dataclass(frozen=True)
class _Place:
    """The paths of one environment on the machine."""

    host: Host
    agent: Agent
    digest: str

    @property
    def python(self) -> str:
        return f"{self.agent.base}/stacks/{self.digest}/bin/python"

    @property
    def marker(self) -> str:
        return f"{self.agent.base}/stacks/{self.digest}.json"

    @property
    def cache(self) -> str:
        return f"{self.agent.base}/stacks/{self.digest}.seen.json"


def _marker(digest: str, fingerprint: Fingerprint) -> bytes:
    return json.dumps({"format": _FORMAT, "stack": digest, "fingerprint": fingerprint.digest}).encode()


def _already(place: _Place, lock: Lock, progress: Progress) -> Fingerprint | None:
    """Return the fingerprint of an environment that is complete and unaltered, else None, in one round
    trip.
    """
    argv = attest_argv(place.agent, place.python, cache=place.cache)
    done = place.host.run(("sh", "-c", _READ_MARKER, "sh", place.marker, *argv), timeout=_SECONDS, most=LONG)
    if done.returncode == 9:
        return None
    marker, _, said = done.stdout.partition(b"\n")
    try:
        fingerprint = parse_fingerprint(said)
    except Malformed:
        _begin_anew(place, "it could not be read back", progress)
        return None
    faults = _faults(lock, fingerprint)
    if marker.strip() == _marker(place.digest, fingerprint) and not faults:
        return fingerprint
    _begin_anew(place, "; ".join(faults[:3]) or "its record differs", progress)
    return None


def _begin_anew(place: _Place, why: str, progress: Progress) -> None:
    """Remove uv's cache there. Installed files are hard links into it, so a change of an installed file
    changed the cache too.
    """
    notice(progress, f"The stack on the machine has changed since it was installed ({why}): reinstalling")
    place.host.run(("rm", "-rf", f"{place.agent.base}/uv-cache"), timeout=_SECONDS)


def _faults(lock: Lock, fingerprint: Fingerprint) -> list[str]:
    return [*read_back(lock, fingerprint), *altered(fingerprint)]


def _proven(place: _Place, lock: Lock) -> Fingerprint:
    fingerprint = attest(place.host, place.agent, place.python, cache=place.cache)
    faults = _faults(lock, fingerprint)
    if faults:
        raise StackError("The installed packages differ from the lock:\n  " + "\n  ".join(faults))
    return fingerprint


def _target(host: Host, agent: Agent, interpreter: Interpreter) -> Target:
    there = ask(host, agent.python)
    if there is None or there.key != interpreter.key:
        raise StackError(
            f"The machine's interpreter is {there.key if there else 'gone'}, not {interpreter.key}.",
            next_command="orch up    # sends it again",
        )
    return target_of(there)


# ---------------------------------------------------------------- delivery


@dataclass(frozen=True)
class _Order:
    """What is to be delivered."""

    lock: Lock
    pins: tuple[Pin, ...]
    target: Target

    def wheels(self, *, anew: bool = False) -> tuple[Wheel, ...]:
        return find_wheels(self.lock, self.pins, self.target, cache_home(), anew=anew) if self.pins else ()


def _deliver(place: _Place, order: _Order, delivery: str, progress: Progress) -> None:
    wheels = order.wheels()
    if delivery != "push":
        reason = _no_download(place, wheels)
        if reason is None:
            progress.say(f"Installing {counted(len(wheels), 'package')}, downloaded by the machine")
            failure = _try_build(place, wheels, network=True)
            if failure is None:
                return
            reason = f"there uv said: {failure}"
        if delivery == "download":
            raise StackError(
                f"The machine cannot download the stack: {reason}",
                next_command="set stack.delivery: push, or auto",
            )
    wheels = _push(place, order, progress)
    progress.say(f"Installing {counted(len(wheels), 'package')}")
    failure = _try_build(place, wheels, network=False)
    if failure is not None:
        raise StackError(f"The stack could not be installed: {failure}")


def _push(place: _Place, order: _Order, progress: Progress) -> tuple[Wheel, ...]:
    hints, wheels = index_hints(order.lock), order.wheels()
    try:
        push_wheels(place.host, place.agent, wheels, cache_home(), progress, index_lines=hints)
    except DownloadFailed:
        wheels = order.wheels(anew=True)
        push_wheels(place.host, place.agent, wheels, cache_home(), progress, index_lines=hints)
    return wheels


def _no_download(place: _Place, wheels: Sequence[Wheel]) -> str | None:
    """Return why the machine cannot fetch these wheels itself; None if it can. It is never given logins
    of indexes.
    """
    if any(urlsplit(wheel.url).scheme not in ("http", "https") for wheel in wheels):
        return "some packages come from files of this computer."
    return unreachable(place.host, place.agent.python, [wheel.url for wheel in wheels])


def _try_build(place: _Place, wheels: Sequence[Wheel], *, network: bool) -> str | None:
    """Build the environment. Return what uv printed if that fails, else None."""
    base, digest = place.agent.base, place.digest
    place.host.put(pylock(wheels, network=network).encode(), f"{base}/stacks/pylock.{digest}.toml")
    compiling = place.agent.argv("bytecode", f"{base}/stacks", digest)
    try:
        sh(place.host, "venv", base, digest, "on" if network else "off", place.agent.python, *compiling)
    except StackError as error:
        return error.message
    return None


def pylock(wheels: Sequence[Wheel], *, network: bool) -> str:
    """Return a pylock.toml of exactly these wheels: by URL, or by path in ../wheels."""
    parts = ['lock-version = "1.0"', 'created-by = "orch"', "packages = []" if not wheels else ""]
    for wheel in wheels:
        digest = f"{{ sha256 = {json.dumps(wheel.sha256)} }}"
        key, place = ("url", wheel.url) if network else ("path", f"../wheels/{wheel.sha256}/{wheel.filename}")
        parts += [
            "[[packages]]",
            f"name = {json.dumps(wheel.name)}",
            f"version = {json.dumps(wheel.version)}",
            f"wheels = [{{ {key} = {json.dumps(place)}, hashes = {digest} }}]",
        ]
    return "\n".join(parts) + "\n"
