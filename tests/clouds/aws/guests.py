"""The real machines behind instances: those of the provider `local`, in a state folder of their own."""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from orchestrator.model import Machine, MachineSpec, Need, Offer
from orchestrator.providers.local.computer import this_computer
from orchestrator.providers.local.provider import LocalProvider
from orchestrator.providers.local.store import Folder, Guest
from orchestrator.providers.local.survey import survey
from tests.clouds import disk_files
from tests.clouds.aws import baked, cloudinit
from tests.clouds.aws.imds import Metadata, Service
from tests.clouds.aws.settings import SETTINGS

SMALLEST = 512 << 20


@dataclass(frozen=True)
class Size:
    """What the instance type promises; the machine gets less where this computer has less. Sizes in bytes."""

    cpus: int
    memory: int
    disk: int


class Running:
    """One machine that runs; `address` is where its sshd listens, `port` 22 but for the lesser tiers."""

    def __init__(self, machine: Machine, folder: Folder, guest: Guest, service: Service | None) -> None:
        self.machine = machine
        self.address = guest.address
        self.port = guest.port
        self._folder = folder
        self._pid = guest.pid
        self._service = service
        self._console = b""

    def console(self, older_than: float) -> bytes:
        """What it had written to its console before that time (seconds since the epoch)."""
        path = Path(f"/proc/{self._pid}/root{cloudinit.CONSOLE}")
        with contextlib.suppress(OSError):
            if path.stat().st_mtime <= older_than:
                self._console = path.read_bytes()
        return self._console

    def stop_service(self) -> None:
        if self._service is not None:
            self._service.close()
            self._service = None


class Guests:
    """All machines of this cloud. Nothing of them outlives `end_all`, or their own deadline at the latest."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._local = LocalProvider(state)

    def start(
        self, instance: str, size: Size, script: str, metadata: Metadata, files: Path | None = None
    ) -> Running:
        """Make the machine; returns when its first process has begun to carry out `script`. `files`: those
        of its image.
        """
        offer, disk = self._offer(size)
        spec = MachineSpec(
            id=instance,
            attempt=1,
            offer=offer,
            disk=disk,
            deadline=datetime.now(UTC) + timedelta(seconds=SETTINGS.machine_lifetime_s),
            labels={"instance": instance},
            ssh_public_key="# none until its first boot has written them",
            user_data=script,
        )
        machine = self._local.create(spec)
        folder = Folder(self._state.absolute() / "machines" / machine.id)
        guest = folder.guest()
        if guest is None:
            raise RuntimeError(f"the machine of {instance} ended at once")
        service = Service(guest.pid, metadata) if guest.interface else None
        if files is not None:
            disk_files.lay_out(files, guest.pid)
        with contextlib.suppress(OSError):  # it may have ended already
            Path(f"/proc/{guest.pid}/root{cloudinit.READY}").touch()
        return Running(machine, folder, guest, service)

    def watch(self, running: Running, ended: Callable[[], None]) -> None:
        """Call `ended` from a thread once the machine's first process is gone, whoever ended it."""

        def wait() -> None:
            with contextlib.suppress(ProcessLookupError):
                fd = os.pidfd_open(running._pid)
                try:
                    poll = select.poll()
                    poll.register(fd, select.POLLIN)
                    poll.poll()
                finally:
                    os.close(fd)
            running.stop_service()
            ended()

        threading.Thread(target=wait, daemon=True, name=f"watch-{running.machine.name}").start()

    def end(self, running: Running) -> None:
        """Kill it and remove all that it was; returns when it is gone."""
        running.stop_service()
        self._local.delete(running.machine)

    def keep_disk(self, instance: str, running: Running) -> None:
        """Remember the disk of an instance that stops, for an image of it."""
        if Path(f"/proc/{running._pid}/root").exists():
            baked.keep(instance, running._pid)

    def press_power_button(self, running: Running, plug_after_s: float) -> None:
        self._local.preempt(running.machine, plug_after_s)

    def freeze(self, running: Running) -> None:
        self._local.freeze(running.machine)

    def partition(self, running: Running, cut: bool) -> None:
        """Cut it off, or reconnect it; nothing where it has no network of its own."""
        if survey(state=self._state).tier == "netns":
            (self._local.partition if cut else self._local.heal)(running.machine)

    def end_all(self) -> None:
        baked.forget_all()
        for machine in self._local.list({}):
            self._local.delete(machine)

    def _offer(self, size: Size) -> tuple[Offer, int]:
        has = this_computer(self._state)
        cpus = max(1, min(size.cpus, has.cpus, SETTINGS.machine_cpus))
        memory = max(SMALLEST, min(size.memory, has.memory, SETTINGS.machine_memory))
        disk = max(SMALLEST, min(size.disk, has.disk, SETTINGS.machine_disk))
        need = Need("local")
        base = self._local.offers(need)[0]
        offer = Offer("local", base.instance_type, base.region, base.zone, cpus, memory, base.arch, 0.0)
        return offer, disk
