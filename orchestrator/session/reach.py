"""Wait until a lease's machine answers, or find out why it no longer exists."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.errors import NOTHING_RUNS, Fault, HostError, ProviderError
from orchestrator.ledger import Holding, Lease
from orchestrator.model import Ending, Endpoint, Machine, MachineState, NotYet, Progress, Provider, clouds
from orchestrator.providers import ending_of
from orchestrator.session.machines import RegionUnseen, machine_from_holding, serving
from orchestrator.session.team import on_this_computer

_BOOT_SECONDS = 600.0
_LARGE_BOOT_SECONDS = 1200.0
_SAY_EVERY_SECONDS = 60.0
_LIST_SECONDS = 1.0
_POLL_SECONDS = 0.1
_LATE_SECONDS = 600.0
_SOON_SECONDS = 10.0
_QUIET_SECONDS = 2.0
_MANY_GPUS = 8
_TOLD_AFTER = (0.0, 0.5, 1.0, 2.0)
"""Pauses, in seconds, before each request to the provider whether a machine that does not answer has
ended.
"""

_OVER = (MachineState.STOPPED, MachineState.STOPPING)


@dataclass(frozen=True)
class Reached:
    """A machine that answers, and the provider that found it.

    `limit_s`: how long its boot may take. `until`: the end of that time, by time.monotonic().
    """

    provider: Provider
    machine: Machine
    endpoint: Endpoint
    limit_s: float
    until: float


class MachineGone(HostError):
    """The lease's machine is gone. `ending`: the provider's reason, None if it gives none.

    `came`: runs that were not pulled from the machine but were downloaded from the store to which it uploaded
    them.
    """

    ending: Ending | None = None
    came: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        return HostError.__name__


def wait_until_reachable(provider: Provider, lease: Lease, progress: Progress) -> Reached:
    """Wait for the lease's machine to answer.

    Raises MachineGone, or HostError if it does not answer in time.
    """
    require_seen(provider, lease)
    threading.Thread(target=_load_ssh, daemon=True).start()
    begun, limit = time.monotonic(), _BOOT_SECONDS
    waiting = Waiting(progress)
    listed, machine = -_LIST_SECONDS, None
    while (waited := time.monotonic() - begun) < limit:
        if waited - listed >= _LIST_SECONDS:
            machine, listed = serving(provider, lease), waited
            if machine is None or machine.state in _OVER:
                _require_hope(provider, lease, machine, waited)
            limit = boot_limit_s(machine) if machine else limit
        endpoint = provider.endpoint(machine) if machine and machine.state not in _OVER else None
        if machine and endpoint and machine.state is MachineState.RUNNING:
            return Reached(provider, machine, endpoint, limit, begun + limit)
        # the list may not have the machine yet: list again
        if endpoint or machine is None:
            listed = -_LIST_SECONDS
        waiting.say(_awaited(machine, endpoint), limit)
        time.sleep(_POLL_SECONDS if waited < _SOON_SECONDS else _POLL_SECONDS * 5)
    raise HostError(
        f"The machine of {lease.id} did not answer within {limit / 60:.0f} min; "
        f"it was still waiting for {waiting.awaited}.",
        exists=f"It may be running, at ${lease.price:.2f}/h.",
        next_command="orch down    # or, to wait longer: orch up",
    )


class Waiting:
    """Reports what is being waited for: after two seconds, when it changes, and every minute."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._begun = time.monotonic()
        self._told: tuple[str, float] = ("", 0.0)
        self.awaited = "its start"

    def say(self, awaited: str, limit: float) -> None:
        self.awaited = awaited
        waited = time.monotonic() - self._begun
        before, at = self._told
        if waited > _QUIET_SECONDS and (awaited != before or waited - at > _SAY_EVERY_SECONDS):
            self._told = (awaited, waited)
            so_far = f"{waited:.0f} s so far, " if waited > _SAY_EVERY_SECONDS else ""
            self._progress.say(
                f"Waiting for the machine to answer: {awaited} ({so_far}at most {limit / 60:.0f} min)"
            )


def _awaited(machine: Machine | None, endpoint: Endpoint | NotYet | None) -> str:
    if isinstance(endpoint, NotYet):
        return endpoint.awaited
    if machine is None:
        return "its appearance in the cloud's list"
    return "its start" if machine.state is MachineState.PENDING else "its address"


def boot_limit_s(machine: Machine) -> float:
    """Seconds that a boot may take. Bare metal may take 20 minutes (canonical/pycloudlib#192), 8 GPUs more
    than 10.
    """
    from orchestrator import catalog

    if "metal" in machine.instance_type:
        return _LARGE_BOOT_SECONDS
    kinds = catalog.load(machine.provider).kinds if machine.provider in catalog.clouds() else ()
    gpus = max((k.accelerator_count for k in kinds if k.instance_type == machine.instance_type), default=0)
    return _LARGE_BOOT_SECONDS if gpus >= _MANY_GPUS else _BOOT_SECONDS


def _load_ssh() -> None:
    """Import the SSH client while the machine boots, because that takes a while."""
    import orchestrator.hosts.ssh  # noqa: F401


def require_seen(provider: Provider, lease: Lease) -> None:
    """Raise ProviderError if the lease's machine is not visible with the current configuration: it may still
    exist.
    """
    if lease.holding:
        machine = machine_from_holding(lease.holding)
        provider.require_reach(machine)
        if clouds.is_here(str(lease.profile["cloud"])):
            _require_of_this_computer(provider, lease, lease.holding, machine)


def _require_of_this_computer(provider: Provider, lease: Lease, holding: Holding, machine: Machine) -> None:
    """Raise RegionUnseen if a local machine belongs to another computer of the team and may be
    running there.
    """
    over = holding.ended_at is not None or (holding.deadline or 0.0) + _LATE_SECONDS < lease.now()
    if over or not holding.by or on_this_computer(holding.by) or provider.find(machine) is not None:
        return
    raise RegionUnseen(
        Fault.INVALID,
        f"The machine of {lease.id} is on the computer of {holding.by} and not visible from this one.",
        exists=f"{machine.name} may run there until its deadline.",
        next_command=f"orch down {lease.id}    # there",
    )


def ending_of_machine(provider: Provider, lease: Lease) -> Ending | None:
    """The provider's reason for the end of the lease's machine; None if it exists or no reason is known."""
    return ending_of(provider, machine_from_holding(lease.holding)) if lease.holding else None


def explain_silence(
    provider: Provider, lease: Lease, lost: HostError, answers: Callable[[], bool]
) -> HostError:
    """Return MachineGone with the provider's reason if the machine has ended; otherwise `lost` itself.

    A machine stops answering before its provider reports its end, so the provider is asked several times.
    """
    for pause in _TOLD_AFTER:
        if answers():
            return lost
        time.sleep(pause)
        try:
            machine = serving(provider, lease)
        except ProviderError:
            return lost
        if machine is None or machine.state in _OVER:
            return _gone(lease, ending_of_machine(provider, lease))
    return lost


def _require_hope(provider: Provider, lease: Lease, machine: Machine | None, waited: float) -> None:
    """Raise MachineGone if the machine is too old to be missing from the list only because it is new."""
    ending = ending_of(provider, machine) if machine else ending_of_machine(provider, lease)
    if ending is not None or machine is not None or waited > _gone_after(lease):
        raise _gone(lease, ending)


def _gone_after(lease: Lease) -> float:
    """Return after how many seconds a machine that is not listed counts as gone.

    A machine that was created seconds ago may not be listed yet.
    """
    fresh = lease.holding is not None and lease.now() - lease.holding.begun_at < 120
    return 60.0 if fresh and not clouds.is_here(lease.profile["cloud"]) else 2.0


def _gone(lease: Lease, ending: Ending | None) -> MachineGone:
    lost = ", ".join(run.run_id for run in lease.uncollected)
    why = (
        ending.message
        if ending
        else "it reached its deadline, was powered off, or was ended by its provider."
    )
    error = MachineGone(
        f"The machine of {lease.id} is gone: "
        f"{why}" + (f" Results that were not pulled: {lost}." if lost else ""),
        exists=NOTHING_RUNS,
        next_command=f"orch down && {lease.up_command}",
    )
    error.ending = ending
    return error
