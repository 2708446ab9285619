"""A bench for machines of the local provider: makes them, reaches them by strict ssh, sees what is left."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from orchestrator.model import Bound, Endpoint, Machine, MachineSpec, Need
from orchestrator.providers.local.provider import LocalProvider

ROOT = Path(__file__).parents[2]
MIB = 1 << 20
LABELS = {"orch-lease": "e2e"}


class Bench:
    """A provider with its own state folder, an identity, and strict ssh to its machines."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.provider = LocalProvider(folder / "state")
        self.identity = folder / "id"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.identity], check=True)

    def spec(
        self, name: str, *, seconds: float = 300, memory: int = 512 * MIB, user_data: str = ""
    ) -> MachineSpec:
        need = Need("local", cpus=Bound(1), memory=Bound(memory), disk=512 * MIB)
        return MachineSpec(
            id=name,
            attempt=1,
            offer=self.provider.offers(need)[0],
            disk=need.disk,
            deadline=datetime.now(UTC) + timedelta(seconds=seconds),
            labels=LABELS,
            ssh_public_key=self.identity.with_suffix(".pub").read_text(),
            user_data=user_data,
        )

    def up(self, name: str, **wishes: object) -> Machine:
        machine = self.provider.create(self.spec(name, **wishes))  # type: ignore[arg-type]
        self.endpoint(machine)
        return machine

    def endpoint(self, machine: Machine) -> Endpoint:
        until(lambda: self.provider.endpoint(machine) is not None)
        found = self.provider.endpoint(machine)
        assert found is not None
        return found

    def ssh_command(self, machine: Machine, command: str) -> list[str]:
        endpoint = self.endpoint(machine)
        known = self.folder / f"known-{machine.id}"
        known.write_text("".join(f"{machine.id} {key}\n" for key in endpoint.host_keys))
        options = {
            "StrictHostKeyChecking": "yes",
            "UserKnownHostsFile": str(known),
            "GlobalKnownHostsFile": "/dev/null",
            "HostKeyAlias": machine.id,
            "IdentitiesOnly": "yes",
            "BatchMode": "yes",
            "ConnectTimeout": "5",
            "Port": str(endpoint.port),
        }
        flags = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        target = f"{endpoint.user}@{endpoint.address}"
        return ["ssh", "-F", "none", "-i", str(self.identity), *flags, target, command]

    def ssh(self, machine: Machine, command: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.ssh_command(machine, command), capture_output=True, text=True, timeout=timeout, check=False
        )

    def says(self, machine: Machine, command: str) -> str:
        done = self.ssh(machine, command)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def listed(self) -> list[Machine]:
        return list(self.provider.list(LABELS))

    def folder_of(self, machine: Machine) -> Path:
        return self.folder / "state/machines" / machine.id

    def guest(self, machine: Machine) -> int:
        return int(json.loads((self.folder_of(machine) / "guest.json").read_text())["pid"])

    def supervisor(self, machine: Machine) -> int:
        return int(json.loads((self.folder_of(machine) / "supervisor.json").read_text())["pid"])

    def remains(self) -> list[str]:
        """All that this computer still holds of machines of this bench."""
        state = str(self.folder / "state")
        machines = [*(self.folder / "state/machines").glob("*"), *(self.folder / "state/machines").glob(".*")]
        mounts = [line for line in Path("/proc/self/mounts").read_text().splitlines() if state in line]
        loops = [
            path.read_text()
            for path in Path("/sys/block").glob("loop*/loop/backing_file")
            if state in path.read_text()
        ]
        processes = [
            entry.name
            for entry in Path("/proc").iterdir()
            if entry.name.isdigit()
            and state.encode() in read_quietly(entry / "environ") + read_quietly(entry / "cmdline")
        ]
        return [*map(str, machines), *mounts, *loops, *processes]

    def _logs(self) -> list[bytes]:
        """What the supervisors of machines that are still there said."""
        return [read_quietly(path) for path in (self.folder / "state/machines").glob("*/supervisor.log")]

    def await_nothing(self) -> None:
        """The supervisor is the last to go, a moment after its machine."""
        end = time.monotonic() + 90
        while remains := self.remains():
            assert time.monotonic() < end, (remains, self._logs())
            time.sleep(0.02)


def read_quietly(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def until(holds: Callable[[], bool], patience_s: float = 60) -> None:
    end = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < end, "it never came to hold"
        time.sleep(0.02)


def groups() -> set[str]:
    """Control groups of machines on this computer, of anybody's."""
    found = subprocess.run(
        ["find", "/sys/fs/cgroup", "-path", "*/orch/m-*", "-type", "d"], capture_output=True, text=True
    )
    return {Path(line).name for line in found.stdout.splitlines()}


def links() -> set[str]:
    return {path.name for path in Path("/sys/class/net").glob("orch*")}


def start_creator(bench: Bench, spec: MachineSpec, then: str) -> subprocess.Popen[bytes]:
    """Another process that says "creating", creates the machine, and goes on with `then`."""
    program = creator_program(spec, bench.folder / "state", then)
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)


def creator_program(spec: MachineSpec, state: Path, then: str) -> str:
    program = f"""
        import pickle, sys, time
        sys.path.insert(0, {str(ROOT)!r})
        from pathlib import Path
        from orchestrator.providers.local.provider import LocalProvider
        spec = pickle.loads({pickle.dumps(spec)!r})
        provider = LocalProvider(Path({str(state)!r}))
        print("creating", flush=True)
        machine = provider.create(spec)
        {then}
    """
    return textwrap.dedent(program)
