"""The life of an instance from launch to its end, beside the record that moto keeps of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from moto.ec2.models.instances import Instance, InstanceState, StateReason

from tests.clouds.aws import cloudinit
from tests.clouds.aws.faults import SCRIPT
from tests.clouds.aws.guests import Guests, Running, Size
from tests.clouds.aws.imds import Metadata
from tests.clouds.aws.settings import SETTINGS

PENDING, RUNNING, SHUTTING_DOWN = ("pending", 0), ("running", 16), ("shutting-down", 32)
TERMINATED, STOPPING, STOPPED = ("terminated", 48), ("stopping", 64), ("stopped", 80)


LAUNCH_ENDS = {
    "Server.InsufficientInstanceCapacity": "There was insufficient instance capacity to satisfy the launch "
    "request",
    "Server.InternalError": "Internal error on launch",
    "Server.SpotInstanceTermination": "Spot instance termination",
    "Client.InternalError": "Client error on launch",
    "Client.VolumeLimitExceeded": "Volume limit exceeded",
    "Client.InvalidSnapshot.NotFound": "The specified snapshot was not found",
}
"""What a StateReason says of a launch that was accepted and failed (a scripted fault of "Boot")."""


@dataclass
class Life:
    """One instance. Times are seconds since the epoch; `ended_at` when it became terminated."""

    instance: Instance
    region: str
    zone: str
    size: Size
    user: str
    key: str
    user_data: bytes
    metadata: Metadata
    spot: Any = None
    public: bool = True
    nvidia_smi: str = ""
    files: Path | None = None
    made_at: float = field(default_factory=time.time)
    running_at: float | None = None
    ended_at: float | None = None
    dead_since: float | None = None
    guest: Running | None = None
    ending: str = ""
    booted: threading.Event = field(default_factory=threading.Event)

    @property
    def visible(self) -> bool:
        return time.time() - self.made_at >= SETTINGS.visible_after_s

    @property
    def listed(self) -> bool:
        return self.ended_at is None or time.time() - self.ended_at < SETTINGS.listed_after_end_s

    def become(self, state: tuple[str, int]) -> None:
        self.instance._state = InstanceState(*state)

    def as_json(self) -> dict[str, Any]:
        return {
            "id": self.instance.id,
            "state": self.instance.state,
            "visible": self.visible,
            "type": self.instance.instance_type,
            "zone": self.zone,
            "region": self.region,
            "address": self.guest.address if self.guest else None,
            "port": self.guest.port if self.guest else None,
            "machine": self.guest.machine.id if self.guest else None,
            "tags": {tag["key"]: tag["value"] for tag in self.instance.get_tags()},
            "client_token": self.instance.client_token,
            "spot": self.spot is not None,
            "reason": self.instance.state_reason.code,
            "metadata_requests": list(self.metadata.seen),
        }


class Lives:
    """All instances that this cloud ever had, and the threads that move them on."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.guests: Guests | None = None
        self._lives: dict[str, Life] = {}

    def get(self, instance: str) -> Life | None:
        return self._lives.get(instance)

    def all(self) -> list[Life]:
        return list(self._lives.values())

    def begin(self, life: Life) -> None:
        life.become(PENDING)
        self._lives[life.instance.id] = life
        threading.Thread(
            target=self._boot, args=(life,), daemon=True, name=f"boot-{life.instance.id}"
        ).start()

    def terminate(self, life: Life, code: str, message: str) -> None:
        """Begin its end; nothing where that has begun already."""
        with self.lock:
            if life.ending == "terminate" or life.ended_at is not None:
                return
            life.ending = "terminate"
            life.become(SHUTTING_DOWN)
            _because(life, code, message)
        self._aside(self._end, life)

    def stop(self, life: Life, code: str, message: str) -> None:
        with self.lock:
            if life.ending:
                return
            life.ending = "stop"
            life.become(STOPPING)
            _because(life, code, message)
        self._aside(self._halt, life)

    def interrupt(self, life: Life, notice_s: float) -> None:
        """Announce the end of a spot instance inside it; then power button, then the plug."""
        when = datetime.fromtimestamp(time.time() + notice_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        life.metadata.instance_action = {"action": "terminate", "time": when}
        if life.spot is not None:
            life.spot._status_code = "marked-for-termination"

        def take() -> None:
            time.sleep(notice_s)
            if life.spot is not None:
                life.spot._status_code = "instance-terminated-no-capacity"
                life.spot.state = "closed"
            self.terminate(life, "Server.SpotInstanceTermination", "Spot instance termination")

        self._aside(lambda _: take(), life)

    def freeze(self, life: Life) -> None:
        """Its guest hangs: it answers nobody, and its timers stand still. EC2 finds it impaired."""
        if life.guest is not None and self.guests is not None:
            self.guests.freeze(life.guest)
        life.dead_since = time.time()

    def console(self, life: Life) -> bytes:
        """What GetConsoleOutput tells by now."""
        guest = life.guest
        if life.running_at is None or guest is None:
            return b""
        return guest.console(time.time() - SETTINGS.console_after_s)

    def check_reach(self) -> None:
        """Let security groups decide who is reached: without an open port 22 there is no way in."""
        for life in self.all():
            if life.guest is not None and not life.ending and self.guests is not None:
                self.guests.partition(life.guest, not admits_ssh(life.instance))

    # ------------------------------------------------------------ inside

    def _aside(self, work: Callable[[Life], None], life: Life) -> None:
        threading.Thread(target=work, args=(life,), daemon=True).start()

    def _boot(self, life: Life) -> None:
        due = time.time() + SETTINGS.running_after_s
        where = {"action": "Boot", "region": life.region, "zone": life.zone}
        fault = SCRIPT.take({**where, "instance_type": life.instance.instance_type})
        try:
            if fault is None and self.guests is not None:
                self._start(life, self.guests)
        except Exception as error:
            print(f"{life.instance.id} did not start: {error}", flush=True)
            self.terminate(life, "Server.InternalError", f"Internal error on launch: {error}")
        finally:
            life.booted.set()
        time.sleep(max(0.0, due - time.time()))
        if fault is not None:
            self.terminate(life, fault.code, fault.message or LAUNCH_ENDS.get(fault.code, fault.code))
            return
        with self.lock:
            if not life.ending:
                life.become(RUNNING)
                life.running_at = time.time()

    def _start(self, life: Life, guests: Guests) -> None:
        name = f"ip-{life.instance.id}"
        host = cloudinit.Host(life.instance.id, name, life.user, life.key, life.nvidia_smi)
        script = cloudinit.script(cloudinit.parse(life.user_data), host)
        running = life.guest = guests.start(life.instance.id, life.size, script, life.metadata, life.files)
        with self.lock:
            if not life.ending:
                _address(life, running.address)
        life.metadata.values["local-ipv4"] = running.address
        if life.public:
            life.metadata.values["public-ipv4"] = running.address
        if not admits_ssh(life.instance):
            guests.partition(running, True)
        guests.watch(running, lambda: self._found_ended(life))

    def _found_ended(self, life: Life) -> None:
        """The machine ended; where nobody here asked for it, it ended itself."""
        if life.ending:
            return
        behaviour = life.instance.instance_initiated_shutdown_behavior
        one_time_spot = life.spot is not None
        if behaviour == "terminate" or one_time_spot:
            self.terminate(life, *_BY_ITSELF)
        else:
            self.stop(life, *_BY_ITSELF)

    def _end(self, life: Life) -> None:
        begun = time.time()
        self._remove_machine(life)
        time.sleep(max(0.0, SETTINGS.gone_after_s - (time.time() - begun)))
        with self.lock:
            reason, why = life.instance._reason, life.instance.state_reason
            life.instance.terminate()  # volumes, addresses
            life.instance._reason, life.instance.state_reason = reason, why
            for nic in life.instance.nics.values():
                nic.public_ip = None
            if life.spot is not None and life.spot.state == "active":
                life.spot.state = "closed"
                life.spot._status_code = "instance-terminated-by-user"
            life.ended_at = time.time()

    def _halt(self, life: Life) -> None:
        begun = time.time()
        life.booted.wait(60)
        if life.guest is not None and self.guests is not None:
            self.guests.keep_disk(life.instance.id, life.guest)
        self._remove_machine(life)
        time.sleep(max(0.0, SETTINGS.gone_after_s - (time.time() - begun)))
        with self.lock:
            if life.ending == "stop":
                life.become(STOPPED)

    def _remove_machine(self, life: Life) -> None:
        life.booted.wait(60)
        for _ in range(20):
            try:
                if life.guest is not None and self.guests is not None:
                    self.guests.end(life.guest)
                return
            except Exception as error:
                print(f"{life.instance.id} resists: {error}", flush=True)
                time.sleep(0.2)


_BY_ITSELF = ("Client.InstanceInitiatedShutdown", "Instance initiated shutdown")


def admits_ssh(instance: Instance) -> bool:
    """Whether one of its security groups lets anybody from an address in to port 22."""
    groups = {group.id: group for nic in instance.nics.values() for group in nic.group_set}
    groups.update({group.id: group for group in instance.security_groups})
    return any(
        rule.ip_range.get("CidrIp") and _covers(rule.ip_protocol, rule.from_port, rule.to_port)
        for group in groups.values()
        for rule in group.ingress_rules
    )


def _covers(protocol: str, first: Any, last: Any) -> bool:
    if str(protocol) == "-1":
        return True
    return str(protocol) in ("tcp", "6") and int(first) <= 22 <= int(last)


def _address(life: Life, address: str) -> None:
    nic = life.instance.nics[0]
    nic.private_ip_address = address
    nic.private_ip_addresses = [{"Primary": True, "PrivateIpAddress": address}]
    nic.public_ip = address if life.public else None


def _because(life: Life, code: str, message: str) -> None:
    when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S GMT")
    asked = code == "Client.UserInitiatedShutdown"
    life.instance._reason = f"User initiated ({when})" if asked else f"{code}: {message}"
    life.instance.state_reason = StateReason(f"{code}: {message}", code)


LIVES = Lives()
"""Those of this server."""
