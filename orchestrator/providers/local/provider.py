"""The provider `local`: machines on this computer, free of charge."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ParamSpec, TypeVar

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import (
    AcceleratorNeed,
    Bound,
    Ending,
    Endpoint,
    Labels,
    Machine,
    MachineImage,
    MachineSpec,
    MachineState,
    Need,
    Offer,
)
from orchestrator.providers import made_there
from orchestrator.providers.beside import NothingBeside
from orchestrator.providers.groups import require_sound
from orchestrator.providers.local import computer, faults, images, network, processes, supervisor
from orchestrator.providers.local import group as local_group
from orchestrator.providers.local.described import described, machine_of, record_of
from orchestrator.providers.local.removal import destroy, sweep
from orchestrator.providers.local.store import (
    Folder,
    Guest,
    Owner,
    Record,
    claim,
    folders,
    machine_id,
    machine_name,
    state_home,
    write_json,
)
from orchestrator.providers.local.survey import Survey, survey

SMALLEST_DISK = 64 << 20
CREATE_PATIENCE_S = 30.0
DELETE_PATIENCE_S = 5.0
GREETING_PATIENCE_S = 1.0

P = ParamSpec("P")
R = TypeVar("R")


def _only_provider_errors(method: Callable[P, R]) -> Callable[P, R]:
    """Decorate a method to translate errors of system calls to ProviderError."""

    @functools.wraps(method)
    def translated(*arguments: P.args, **named: P.kwargs) -> R:
        try:
            return method(*arguments, **named)
        except (OSError, RuntimeError, ValueError, subprocess.SubprocessError) as error:
            raise ProviderError(
                Fault.UNKNOWN, f"Error on this computer: {error}", code=type(error).__name__
            ) from error

    return translated


def open_local(state: Path | None = None) -> LocalProvider:
    return LocalProvider(state or state_home(os.environ))


class LocalProvider(NothingBeside):
    """The machines in `state`/machines, for several processes at once."""

    name = "local"
    list_lag_s = 0.0

    def __init__(self, state: Path) -> None:
        self._machines = state.absolute() / "machines"

    # ------------------------------------------------------------ the protocol

    @_only_provider_errors
    def offers(self, need: Need) -> Sequence[Offer]:
        self.survey()
        return [computer.offer(need, computer.this_computer(self._machines))]

    @_only_provider_errors
    def create(self, spec: MachineSpec) -> Machine:
        _require_sound(spec)
        folder = self._folder(machine_id(spec))
        end = time.monotonic() + CREATE_PATIENCE_S
        while True:
            owner = claim(folder, make=True)
            if owner is not None:
                made = self._create_in(owner, spec)
                if made is not None:
                    return made
            elif (found := described(folder)) and found.state is MachineState.RUNNING:
                return found
            if time.monotonic() > end:
                raise _busy(machine_name(spec))
            time.sleep(0.01)

    @_only_provider_errors
    def list(self, labels: Labels) -> Sequence[Machine]:
        sweep(self._machines)
        found = [machine for folder in folders(self._machines) if (machine := _looked_after(folder))]
        return [machine for machine in found if labels.items() <= machine.labels.items()]

    @_only_provider_errors
    def find(self, machine: Machine) -> Machine | None:
        folder = self._folder(machine.id)
        return _looked_after(folder) if folder.path.exists() else None

    @_only_provider_errors
    def delete(self, machine: Machine) -> None:
        folder = self._folder(machine.id)
        if not folder.path.exists():
            return
        owner = claim(folder)
        if owner is None:
            owner = _taken_from_supervisor(folder)
        if owner is None:
            return
        try:
            if not destroy(folder):
                raise ProviderError(
                    Fault.TRANSIENT,
                    f"Some processes of {machine.name} have not ended yet.",
                    exists=f"{machine.name} on this computer, at no price",
                )
        finally:
            owner.release()

    @_only_provider_errors
    def endpoint(self, machine: Machine) -> Endpoint | None:
        folder, record, guest = self._running(machine, required=False)
        if record is None or guest is None:
            return None
        greeted = folder.path / "greeted.json"
        if not greeted.exists():
            if not network.answers_ssh(guest.address, guest.port, GREETING_PATIENCE_S):
                return None
            write_json(greeted, {"at": time.time()})
        return Endpoint(guest.address, guest.port, record.user, (folder.host_key(),))

    @_only_provider_errors
    def ending(self, machine: Machine) -> Ending | None:  # noqa: ARG002 (nothing is kept of what ended)
        return None

    @_only_provider_errors
    def join(self, group: str, machines: Sequence[Machine], ports: range) -> Sequence[str]:
        """Connect the machines by a bridge; returns their addresses.

        In tiers without a separate network it is 127.0.0.1, where all programs here can connect to them.
        """
        require_sound(group, ports)
        members = [self._certainly_running(machine) for machine in machines]
        own = [
            local_group.Member(guest.pid, folder.mark, guest.interface)
            for folder, record, guest in members
            if record.tier == "netns"
        ]
        if not own:
            return [guest.address for _, _, guest in members]
        if len(own) < len(members):
            raise ProviderError(Fault.INVALID, f"Not every machine of {group} has a separate network.")
        try:
            return local_group.join(self._machines, group, own, ports)
        except RuntimeError:
            for machine in machines:
                self._certainly_running(machine)
            raise

    @_only_provider_errors
    def separate(self, group: str) -> None:
        local_group.separate(self._machines, group)

    @_only_provider_errors
    def bake(self, machine: Machine, name: str, labels: Labels) -> MachineImage:
        """Copy orch's folder of the machine, and end the machine."""
        known = images.known(self._machines, name, labels)
        if known is None:
            folder, record, guest = self._certainly_running(machine)
            with faults.frozen(folder, guest):
                known = images.store(self._machines, name, labels, record, guest)
        self.delete(machine)
        return known

    @_only_provider_errors
    def images(self, labels: Labels) -> Sequence[MachineImage]:
        return images.listed(self._machines, labels)

    @_only_provider_errors
    def delete_image(self, image: MachineImage) -> None:
        images.delete(self._machines, image.name)

    def require_reach(self, machine: Machine) -> None:
        """Do nothing: this computer can always be reached."""

    def principal(self) -> str:
        return ""

    def vouch(self, machine: Machine, host_keys: Sequence[str]) -> None:  # noqa: ARG002
        raise made_there(self.name, machine)

    # ------------------------------------------------------------ fault injection, for tests

    @_only_provider_errors
    def kill(self, machine: Machine) -> None:
        """Kill the machine without notice, as the worst preemption does."""
        faults.kill(self._folder(machine.id))

    @_only_provider_errors
    def preempt(self, machine: Machine, notice_s: float) -> None:
        """Ask the machine to shut down, and kill it `notice_s` seconds later. Returns at once."""
        folder, _, guest = self._certainly_running(machine)
        faults.preempt(folder, guest, notice_s)

    @_only_provider_errors
    def freeze(self, machine: Machine) -> None:
        folder, _, guest = self._certainly_running(machine)
        faults.freeze(folder, guest, True)

    @_only_provider_errors
    def thaw(self, machine: Machine) -> None:
        folder, _, guest = self._certainly_running(machine)
        faults.freeze(folder, guest, False)

    @_only_provider_errors
    def partition(self, machine: Machine) -> None:
        """Drop all packets between the machine and this computer."""
        _, record, guest = self._certainly_running(machine)
        faults.partition(record, guest, True)

    @_only_provider_errors
    def heal(self, machine: Machine) -> None:
        _, record, guest = self._certainly_running(machine)
        faults.partition(record, guest, False)

    @_only_provider_errors
    def isolate(self, machine: Machine) -> None:
        """Drop all packets between the machine and the others of its group."""
        folder, record, guest = self._certainly_running(machine)
        faults.isolate(folder, record, guest, True)

    @_only_provider_errors
    def rejoin(self, machine: Machine) -> None:
        folder, record, guest = self._certainly_running(machine)
        faults.isolate(folder, record, guest, False)

    @_only_provider_errors
    def fill_disk(self, machine: Machine) -> None:
        folder, record, guest = self._certainly_running(machine)
        faults.fill_disk(folder, record, guest)

    @_only_provider_errors
    def free_disk(self, machine: Machine) -> None:
        folder, record, guest = self._certainly_running(machine)
        faults.free_disk(folder, record, guest)

    # ------------------------------------------------------------ inside

    def survey(self) -> Survey:
        """Return the tier that this computer allows. Raises ProviderError(INVALID) if it allows none."""
        found = survey(state=self._machines)
        if found.tier == "none":
            raise ProviderError(
                Fault.INVALID,
                f"No machine can be created here: {', '.join(found.missing) or 'its tier'} is missing.",
                code="LocalTools",
                next_command=found.fix or None,
            )
        return found

    def _folder(self, identity: str) -> Folder:
        if not identity or "/" in identity or identity.startswith("."):
            raise ProviderError(Fault.INVALID, f"{identity!r} is not a machine on this computer.")
        return Folder(self._machines / identity)

    def _create_in(self, owner: Owner, spec: MachineSpec) -> Machine | None:
        """Create the machine in the locked folder; None if only remains of an earlier one were removed: try
        again.
        """
        folder = owner.folder
        try:
            if folder.record() is not None:
                found = described(folder)
                if found is not None and found.state is MachineState.RUNNING:
                    return found
                destroy(folder)
                return None
            found_tier = self.survey()
            _require_capacity(spec, self._machines)
            images.require(self._machines, spec.image, found_tier.tier)
            folder.write_record(record_of(spec, found_tier, folder))
            refusal = supervisor.spawn(owner)
        except BaseException:
            if folder.record() is None:
                destroy(folder)
            raise
        finally:
            owner.release()
        if refusal:
            raise ProviderError(
                Fault.UNKNOWN,
                f"The machine {machine_name(spec)} did not start: {refusal}",
                code="LocalBoot",
            )
        return described(folder) or machine_of(
            record_of(spec, found_tier, folder), MachineState.STOPPING, None
        )

    def _running(self, machine: Machine, *, required: bool) -> tuple[Folder, Record | None, Guest | None]:
        folder = self._folder(machine.id)
        record, guest = folder.record(), folder.guest()
        if guest is not None and guest.ready and processes.Process(guest.pid, guest.start).alive():
            return folder, record, guest
        if required:
            raise ProviderError(Fault.INVALID, f"The machine {machine.name} is not running.")
        return folder, record, None

    def _certainly_running(self, machine: Machine) -> tuple[Folder, Record, Guest]:
        folder, record, guest = self._running(machine, required=True)
        assert record is not None
        assert guest is not None
        return folder, record, guest


def _looked_after(folder: Folder) -> Machine | None:
    """Return the machine's current state; if its supervisor and processes are gone, remove its remains."""
    owner = claim(folder)
    if owner is None:
        return described(folder)
    try:
        found = described(folder)
        if found is not None and found.state is MachineState.RUNNING and not _overdue(folder):
            return found
        return None if destroy(folder) else found and replace(found, state=MachineState.STOPPING)
    finally:
        owner.release()


def _overdue(folder: Folder) -> bool:
    record = folder.record()
    return record is not None and record.left < -supervisor.DEADLINE_GRACE_S


def _taken_from_supervisor(folder: Folder) -> Owner | None:
    """Let the supervisor end its machine, or end the supervisor; return the lock, None if all is gone."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        process = supervisor.supervisor_of(folder)
        if process is not None:
            process.signal(number)
        owner = claim(folder, patience_s=DELETE_PATIENCE_S)
        if owner is not None or not folder.path.exists():
            return owner
    raise _busy(folder.id)


def _busy(machine: str) -> ProviderError:
    message = f"Another command is still working on the machine {machine}."
    return ProviderError(Fault.BUSY, message, next_command="orch status    # then repeat the command")


def _require_capacity(spec: MachineSpec, state: Path) -> None:
    """Raise ProviderError(CAPACITY) if this computer now has less than the accepted offer."""
    offered = spec.offer
    accelerator = AcceleratorNeed(Bound(offered.accelerator_count)) if offered.accelerator_count else None
    need = Need(
        cloud="local",
        cpus=Bound(offered.cpus),
        memory=Bound(offered.memory),
        disk=spec.disk,
        accelerator=accelerator,
        arch=offered.arch,
    )
    computer.offer(need, computer.this_computer(state))


def _require_sound(spec: MachineSpec) -> None:
    problems = {
        "ssh_public_key is not one OpenSSH line": len(spec.ssh_public_key.strip().splitlines()) != 1,
        "user_data does not begin with #!": bool(spec.user_data) and not spec.user_data.startswith("#!"),
        "the deadline has no time zone": spec.deadline.tzinfo is None,
        f"the disk is smaller than {SMALLEST_DISK >> 20} MiB": spec.disk < SMALLEST_DISK,
        "labels are not text": not all(
            isinstance(text, str) for pair in spec.labels.items() for text in pair
        ),
    }
    for problem, present in problems.items():
        if present:
            raise ProviderError(Fault.INVALID, f"Refused for {machine_name(spec)}: {problem}.")
