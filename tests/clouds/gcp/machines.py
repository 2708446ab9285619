"""The real machines behind the instances: the local provider's own, in a folder of this cloud's own."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from orchestrator.model import Machine, MachineSpec, Offer
from orchestrator.providers.local import computer, processes
from orchestrator.providers.local.provider import LocalProvider
from orchestrator.providers.local.store import Folder
from tests.clouds.gcp.world import Settings

AGENT = Path(__file__).parent / "guest/agent.py"
_NOBODY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGtQzVn0VdkT0Wm2yQ0nXUkPSpPkXyBzQkq5dlqCqk0a nobody"


@dataclass(frozen=True)
class Running:
    """A machine that was started: where it answers, and its first process."""

    machine: Machine
    address: str
    pid: int
    start: str

    def alive(self) -> bool:
        return processes.Process(self.pid, self.start).alive()


class Machines:
    """All machines of one emulated cloud, in `state`. They need root: each has its own network."""

    def __init__(self, state: Path, settings: Settings) -> None:
        self._state = state
        self._settings = settings
        self.local = LocalProvider(state)

    def start(self, identity: str, disk: int, guest: dict[str, object]) -> Running:
        """Start one; `guest` is what its image is told about itself. RuntimeError where none can be made."""
        if self.local.survey().tier != "netns":
            raise RuntimeError("an instance needs a network of its own, and so root on this computer")
        settings = self._settings
        has = computer.this_computer(self._state)
        offer = Offer(
            cloud="local",
            instance_type="local",
            region="local",
            zone="local",
            cpus=min(settings.guest_cpus, has.cpus),
            memory=min(settings.guest_memory, has.memory),
            arch=has.arch,
            price=0.0,
        )
        spec = MachineSpec(
            id=identity,
            attempt=1,
            offer=offer,
            disk=min(disk, settings.guest_disk, has.disk),
            deadline=datetime.now(UTC) + timedelta(seconds=settings.longest_life_s),
            labels={},
            ssh_public_key=_NOBODY,
            user_data=_agent(guest),
        )
        machine = self.local.create(spec)
        record = Folder(self._state.absolute() / "machines" / machine.id).guest()
        if record is None:
            raise RuntimeError("the machine ended as soon as it had begun")
        return Running(machine, record.address, record.pid, record.start)

    def end(self, running: Running) -> None:
        self.local.delete(running.machine)

    def end_all(self) -> None:
        for machine in self.local.list({}):
            self.local.delete(machine)

    def console(self, running: Running) -> str:
        """What the guest has written to its console so far."""
        try:
            return Path(f"/proc/{running.pid}/root/var/log/user-data.log").read_text(errors="replace")
        except OSError:
            return ""


def _agent(guest: dict[str, object]) -> str:
    """The guest environment as one script that a machine runs when it boots."""
    told = base64.b64encode(json.dumps(guest).encode()).decode()
    return AGENT.read_text().replace("@GUEST@", told)
