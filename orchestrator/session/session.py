"""A connection to a lease's machine: key verified, ready to install and to run."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Annotated

from orchestrator import stack
from orchestrator.errors import DiskFull, HostError, HostKeyError, LoginRefused, StackError
from orchestrator.ledger import Lease, Ledger
from orchestrator.ledger.events import MachineArmed, MachineReached
from orchestrator.model import (
    FAR_BASE,
    Agent,
    Difference,
    Fingerprint,
    Host,
    Lock,
    Machine,
    Progress,
    Provider,
    StackFacts,
    clouds,
)
from orchestrator.model.answers import Between, Malformed, decoded, malformed
from orchestrator.model.beside import Beside
from orchestrator.model.plain import last_words
from orchestrator.model.progress import doing, notice
from orchestrator.profile import Profile
from orchestrator.profile.resolve import lock_command
from orchestrator.providers import open_provider
from orchestrator.runtime import space
from orchestrator.runtime.attest.facts import environment as acting_variables
from orchestrator.session import local_ssd, unrecorded
from orchestrator.session.connect import connect_verified, is_answering
from orchestrator.session.project import Project
from orchestrator.session.reach import MachineGone, Reached, Waiting, explain_silence, wait_until_reachable
from orchestrator.session.releasing import release_again

_PAUSE_SECONDS = 1.0


@dataclass(frozen=True)
class Timer:
    """The answer of the runtime's verb `watch`: seconds until the deadline that it enforces, None without
    one.
    """

    left: Annotated[float, Between(-(1 << 34), 1 << 34)] | None


@dataclass
class Session:
    """Everything that one command needs of a lease: project, ledger, machine and connection."""

    project: Project
    ledger: Ledger
    profile: Profile
    provider: Provider
    machine: Machine
    host: Host
    agent: Agent
    progress: Progress

    @property
    def rank(self) -> int:
        """The number of the machine among those that train one model together, from 0."""
        return self.ledger.lease().rank

    def install(self) -> stack.Installed:
        """Install exactly the lock's packages on the machine. Fast if they are installed."""
        lock = self.lock()
        return stack.install(
            self.host,
            self.agent,
            lock,
            stack.interpreter(self.local().python),
            delivery=self.profile.stack.delivery,
            progress=self.progress,
        )

    def lock(self) -> Lock:
        return read_lock(self.profile)

    def local(self) -> stack.LocalStack:
        """The environment in which the user works, created from the lock if there is none."""
        return local_stack(self.profile, self.progress)

    def watch_idleness(self, *, at_least: float = 0.0) -> None:
        """Start the idle watch: the machine powers itself off after `idle_duration` without use, or
        `at_least` seconds, and at its deadline, after asking its jobs to save. The first deadline stays.
        """
        seconds = max(self.profile.idle_duration or 0, at_least)
        early = float(self.machine.detail.get("ended_early_s", 0.0))
        late = float(self.machine.detail.get("ended_by_cloud_s", 0.0)) + early
        left = max(1.0, self._left() - early) if self.machine.deadline else 0.0
        argv = self.agent.argv("watch", self.agent.base, "--left", f"{left:.0f}", "--idle", f"{seconds:.0f}")
        argv = (*argv, "--late", f"{late:.0f}")
        notices = clouds.traits(self.machine.provider).notices
        if self.machine.detail.get("spot") and notices:
            argv = (*argv, "--spot", notices)
        power_off = self.machine.detail.get("power_off")  # needed unless the login user is root
        argv = (*argv, "--", *power_off) if power_off else argv
        done = self.host.run(argv, timeout=30)
        if done.returncode == space.STATUS:
            raise DiskFull(f"The machine's disk is full: {last_words(done.stderr)}")
        if done.returncode != 0:
            raise HostError(
                f"The machine could not start its idle watch: {last_words(done.stderr)}",
                exists=f"{self.machine.id} is still running, at ${self.machine.price:.2f}/h.",
                next_command=self.ledger.lease().up_command,
            )
        self._note_timer(done.stdout)

    def _note_timer(self, answer: bytes) -> None:
        """Record once that a timer enforces the deadline. Raises HostError if the machine shows none."""
        shown = parse_timer(answer, self.machine.name)
        if self.machine.deadline and shown.left is None:
            raise HostError(
                f"{self.machine.name} shows no timer for its deadline.",
                exists=f"{self.machine.id} is still running, at ${self.machine.price:.2f}/h.",
                next_command="orch down",
            )
        held = self.ledger.lease().holding
        if held and held.id == self.machine.id and not held.armed:
            self.ledger.record(MachineArmed(held.id, shown.left))

    def confine(self) -> None:
        """Remove the rights with which jobs could disable the deadline, as far as possible."""
        command = tuple(self.machine.detail.get("confine", ()))
        if not command:
            return
        done = self.host.run(command, timeout=60)
        if done.returncode != 0:
            why = last_words(done.stderr) or f"status {done.returncode}"
            notice(
                self.progress,
                f"Jobs on this machine can become root, and so could disable its deadline: {why}",
            )

    def _left(self) -> float:
        """Seconds until the deadline. At most `max_duration`; if it has passed by this computer's clock,
        `max_duration`, because the cloud enforces the deadline by its own clock.
        """
        assert self.machine.deadline is not None
        left = self.machine.deadline.timestamp() - time.time()
        longest = float(self.profile.max_duration)
        return min(left, longest) if left > 0 else longest


def parse_timer(answer: bytes, name: str) -> Timer:
    """Parse the answer of the verb `watch` on machine `name`. Raises MalformedAnswer for anything else."""
    try:
        return decoded(Timer, answer)
    except Malformed as error:
        raise malformed(name, "watch", str(error)) from error


def read_lock(profile: Profile) -> Lock:
    if profile.stack.lock is None:
        raise StackError(
            f"{profile.name} names no lock, and {profile.code.path} has none of uv.lock, pylock.toml, "
            "requirements.lock or a requirements.txt with hashes.",
            next_command=lock_command(profile.code.path),
        )
    return stack.read_lock(profile.stack.lock)


def local_stack(profile: Profile, progress: Progress) -> stack.LocalStack:
    return stack.local_environment(
        read_lock(profile), profile.code.path, profile.stack.python, progress=progress
    )


def attest_local(session: Session) -> Fingerprint:
    """Return the installed stack of this computer, with the environment variables that a job would have."""
    return stack.attest_here(session.local().python, environment=session.profile.train.environment())


def check_stack(session: Session, installed: stack.Installed, here: Fingerprint) -> tuple[Difference, ...]:
    """Return every difference of the machine's stack, as the job will see it, from the lock and from the
    local stack.
    """
    variables = session.profile.train.environment()
    there = replace(
        installed.fingerprint,
        environment={**installed.fingerprint.environment, **acting_variables(variables)},
    )
    return stack.differences(session.lock(), here, there, session.profile.stack.allow)


def tell_inherited(session: Session) -> None:
    """Report the variables that the run inherits from this shell, unless the last run had the same."""
    last = max(session.ledger.lease().runs.values(), key=lambda run: run.started_at, default=None)
    before = last.inherited if last else {}
    for line in inherited_lines(before, session.profile.train.inherited()):
        notice(session.progress, line)


def inherited_lines(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """Lines about inherited variables, compared with those of the run `before`."""
    if now and now != before:
        listed = ", ".join(f"{name}={value}" for name, value in now.items())
        yield f"The run inherits these variables of your shell, because they can change results: {listed}"
    if gone := [name for name in before if name not in now]:
        yield f"The previous run had variables that your shell does not set now: {', '.join(gone)}"


def told(difference: Difference) -> str:
    reason = f" ({difference.reason})" if difference.reason else ""
    here, there = difference.here or "absent", difference.there or "absent"
    return f"{difference.kind} {difference.name}: here {here}, there {there}{reason}"


def stack_facts(installed: stack.Installed) -> StackFacts:
    fingerprint = installed.fingerprint
    return {
        "digest": fingerprint.digest,
        "python": fingerprint.python,
        "packages": len(fingerprint.distributions),
        "interpreter": installed.python,
    }


@contextmanager
def open_session(
    project: Project, ledger: Ledger, profile: Profile, *, progress: Progress, reached: Reached | None = None
) -> Iterator[Session]:
    """Wait until the machine answers (unless `reached`), verify its host key and install the runtime.

    Raises HostKeyError, before anything is sent, if the key is not the one that its provider reports. If
    contact is lost in the block, the provider is asked whether the machine is gone; MachineGone gives the
    reason.
    """
    lease = ledger.lease()
    found = reached or wait_until_reachable(open_provider(profile.cloud), lease, progress)
    provider, machine = found.provider, found.machine
    interpreter = Beside(lambda: stack.interpreter(local_stack(profile, progress).python))
    base = str(machine.detail.get("base", FAR_BASE))
    waiting = Waiting(progress)
    with doing(progress, f"Connecting to {machine.name}"):
        host = _let_in_or_gone(project, lease, found, waiting if reached else None)
    session = None
    try:
        if reached:
            _make_base(host, base, found, waiting)
            local_ssd.use(host, machine, base, found.endpoint.user, progress)
            ledger.record(MachineReached(machine.id))
        agent = stack.bootstrap(host, base=base, interpreter=interpreter.result(), progress=progress)
        host.run(("touch", f"{agent.base}/active"), timeout=30)  # an open session counts as use
        release_again(project, ledger, host, agent)
        unrecorded.ask_host(ledger, host, base, agent)
        session = Session(project, ledger, profile, provider, machine, host, agent, progress)
        yield session
    except (HostKeyError, MachineGone):
        raise
    except HostError as lost:
        current = session.host if session else host
        raise explain_silence(provider, ledger.lease(), lost, lambda: is_answering(current)) from lost
    finally:
        current = session.host if session else host  # a broken connection may have been replaced
        current.close()


def _let_in_or_gone(project: Project, lease: Lease, found: Reached, waiting: Waiting | None) -> Host:
    """Log in. Raises MachineGone, with the reason, if the machine stops answering because it was
    preempted.
    """
    try:
        return _let_in(project, lease, found, waiting)
    except HostKeyError:
        raise
    except HostError as lost:
        raise explain_silence(found.provider, lease, lost, lambda: False) from lost


def _let_in(project: Project, lease: Lease, found: Reached, waiting: Waiting | None) -> Host:
    """Log in; with `waiting`, retry until the boot limit: ssh may answer before the account exists."""
    while True:
        try:
            return connect_verified(project, lease, found.provider, found.machine, found.endpoint)
        except LoginRefused:
            if waiting is None or time.monotonic() > found.until:
                raise
        waiting.say(f"the login of {found.endpoint.user}", found.limit_s)
        time.sleep(_PAUSE_SECONDS)


def _make_base(host: Host, base: str, found: Reached, waiting: Waiting) -> None:
    """Create orch's folder, retrying until the boot limit: a first boot may still create its parent."""
    while (done := host.run(("mkdir", "-p", base), timeout=30)).returncode != 0:
        if time.monotonic() > found.until:
            raise HostError(
                f"{base} cannot be created on {found.machine.name}: {last_words(done.stderr)}",
                exists=f"{found.machine.id} is still running, at ${found.machine.price:.2f}/h.",
                next_command="orch down",
            )
        waiting.say(f"the folder {base}", found.limit_s)
        time.sleep(_PAUSE_SECONDS)


def local_agent(project: Project) -> Agent:
    """Return the runtime for runs on this computer: recordings and the local side of parity."""
    return stack.local_agent(project.here)
