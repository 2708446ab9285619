"""The provider `gcp`: machines of Google Compute Engine."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import (
    LABEL_EXPIRES,
    LABEL_LEASE,
    LABEL_OWNER,
    Ending,
    Endpoint,
    Labels,
    Machine,
    MachineSpec,
    MachineState,
    Need,
    NotYet,
    Offer,
    Provider,
)
from orchestrator.providers import made_there, tunnels
from orchestrator.providers.beside import NothingBeside
from orchestrator.providers.gcp import (
    endings,
    grouping,
    images,
    operations,
    placement,
    request,
    seen,
    tunnel,
    zones,
)
from orchestrator.providers.gcp import group as firewall_rule
from orchestrator.providers.gcp.baking import InstanceImages
from orchestrator.providers.gcp.calls import INSERT, require_named
from orchestrator.providers.gcp.clients import Clients
from orchestrator.providers.gcp.faults import of_operation
from orchestrator.providers.gcp.image_calls import ImageCalls
from orchestrator.providers.gcp.names import (
    GUEST_NAMESPACE,
    GUEST_STATE,
    call_id,
    group_name,
    is_label,
    machine_name,
)
from orchestrator.providers.gcp.os_login import OsLogin
from orchestrator.providers.gcp.policy_calls import PolicyCalls
from orchestrator.providers.groups import require_sound
from orchestrator.providers.retry import RetryingProvider
from orchestrator.providers.undecided import undecided

_LIVES = 4
"""How often a machine is requested if Google answers with an earlier operation, whose machine is gone."""

_OVER = (MachineState.STOPPING, MachineState.STOPPED)

_FINAL = (Fault.CAPACITY, Fault.QUOTA, Fault.AUTH, Fault.INVALID)
"""Refusals after which no machine exists, and none will be created by that call."""

_APPEARING_S = 3.0

_SILENT_S = 240.0
"""Seconds to wait for the first boot's report. Then a machine with known host keys is contacted without it:
its script may start long after ssh answers, and login does not need it.
"""

_BOOTING_S = 540.0
"""Seconds that the first boot may take after it reported its start: it may install a driver."""


def open_gcp(state: Path | None = None) -> Provider:  # noqa: ARG001 (Google keeps it)
    return RetryingProvider(GcpProvider(os.environ))


class _AllCalls(ImageCalls, PolicyCalls):
    """The API calls for one project."""


class GcpProvider(NothingBeside, InstanceImages):
    """Machines of one project. The environment is read at creation, the library is loaded at the first
    use.
    """

    name = "gcp"
    list_lag_s = 90.0
    _calls: _AllCalls

    def __init__(self, environ: Mapping[str, str], *, silent_s: float = _SILENT_S) -> None:
        self._environ = dict(environ)
        self._calls = _AllCalls(Clients(self._environ))
        self._silent_s = silent_s
        self._bodies: dict[str, dict[str, Any]] = {}
        self._lives: dict[str, int] = {}
        self._images: dict[str, images.Image] = {}
        self._first_keys: dict[str, float] = {}
        self._tunnels = tunnels.Tunnels()
        self._os_login = OsLogin(self._environ)

    # ------------------------------------------------------------ the protocol

    def offers(self, need: Need) -> Sequence[Offer]:
        from orchestrator import catalog

        found = catalog.offers(need, clouds=("gcp",))
        if all(offer.zone for offer in found):
            return found
        try:
            known = self._calls.zones()
        except ProviderError as error:
            placed = [offer for offer in found if offer.zone]
            # Without a login, a plan can still be made from the catalog alone.
            if error.fault not in (Fault.AUTH, Fault.INVALID) or not placed:
                raise
            return placed
        return [
            offer for offer in zones.expanded(found, known) if need.zone is None or offer.zone == need.zone
        ]

    def create(self, spec: MachineSpec) -> Machine:
        try:
            return self._created(spec)
        except ProviderError as error:
            if not error.undecided and error.fault in _FINAL and self._os_login.withdraw():
                self._bodies.clear()  # they contain a removed key
            raise

    def _created(self, spec: MachineSpec) -> Machine:
        request.require_sound(spec)
        if self._setting.tunnel:
            tunnels.require(tunnel.PROGRAMS, tunnel.PURPOSE)
        there = self._calls.instance(spec.offer.zone, machine_name(spec))
        if there is not None:
            return self._adopted(there, spec)
        if spec.group:
            placement.require(self._calls, spec.offer.zone, spec.group)
        for _ in range(_LIVES):
            made = self._made(spec)
            if made is not None:
                return made
        message = f"Google reported that {machine_name(spec)} was created, but does not list it."
        raise ProviderError(Fault.UNKNOWN, message, code="MadeAndAbsent")

    def list(self, labels: Labels) -> Sequence[Machine]:
        found = [
            seen.machine(instance, self._calls.project, now)
            for instance, now in self._calls.instances(_filter(labels))
            if seen.is_ours(instance)
        ]
        return [machine for machine in found if labels.items() <= machine.labels.items()]

    def find(self, machine: Machine) -> Machine | None:
        instance = self._calls.instance_of(machine)
        return seen.machine(instance, self._calls.project) if instance is not None else None

    def delete(self, machine: Machine) -> None:
        require_named(machine)
        self._calls.delete(machine.zone, machine.id)

    def forget(self, machine: Machine) -> None:
        """Remove the lease's key from the caller's OS Login profile, if it was imported there."""
        key = machine.detail.get("login_key")
        if isinstance(key, str):
            self._os_login.remove(key)

    def endpoint(self, machine: Machine) -> Endpoint | NotYet | None:
        require_named(machine)
        instance = self._calls.instance(machine.zone, machine.id)
        if instance is None or seen.state(instance) is not MachineState.RUNNING:
            return None
        address, proxy = self._way_to(instance, machine)
        if not address:
            return None
        keys = seen.host_keys(self._calls.guest_attributes(machine.zone, machine.id, "hostkeys/"))
        if not keys:
            return NotYet("its host keys, which its first boot publishes")
        if not self._ready(machine, str(instance.get("id", ""))):
            return NotYet("the end of its first boot")
        if proxy and not self._tunnels.is_open(machine.id, proxy):
            return NotYet("its tunnel")
        return Endpoint(address, 22, seen.user_of(instance), keys, proxy)

    def _way_to(self, instance: Mapping[str, Any], machine: Machine) -> tuple[str, tuple[str, ...]]:
        """Return the address and the tunnel; the address is "" if there is none yet."""
        public, private = seen.addresses(instance)
        if seen.has_public_address(instance):
            return public, ()
        if not self._setting.tunnel:
            return private, ()
        tunnels.require(tunnel.PROGRAMS, tunnel.PURPOSE)
        return machine.id, tunnel.proxy_command(self._calls.project, machine.zone, machine.id)

    @property
    def _setting(self) -> request.Setting:
        return request.Setting.of(self._calls.project, self._environ)

    def ending(self, machine: Machine) -> Ending | None:
        """Return how a machine ended. One that Google has listed before and does not find any more
        has ended.
        """
        require_named(machine)
        number = str(machine.detail.get("number", ""))
        instance = self._calls.instance(machine.zone, machine.id)
        if (
            instance is not None
            and number in ("", str(instance.get("id", "")))
            and seen.state(instance) not in _OVER
        ):
            return None
        told = self._calls.done_to(machine.zone, number) if number.isdigit() else ()
        found = endings.ending_of(told, machine.id, machine.zone)
        stopped = endings.stopped_at(instance) if instance is not None else None
        return replace(found, at=stopped) if stopped is not None else found

    def join(self, group: str, machines: Sequence[Machine], ports: range) -> Sequence[str]:
        """Connect the machines by a firewall rule; returns their internal addresses."""
        require_sound(group, ports)
        found = [(machine.id, self._calls.instance_of(machine)) for machine in machines]
        return firewall_rule.join(self._calls, group, found, ports)

    def separate(self, group: str) -> None:
        self._calls.remove_firewall(group_name(group))
        placement.separate(self._calls, group)

    def prune(self, *, dry_run: bool = False) -> Sequence[str]:
        return grouping.prune(self._calls, dry_run=dry_run)

    def require_reach(self, machine: Machine) -> None:
        project = machine.detail.get("project")
        if project in (None, "", self._calls.project):
            return
        raise ProviderError(
            Fault.INVALID,
            f"The machine {machine.name} is in the project {project}, but orch uses "
            f"{self._calls.project} now.",
            code="OtherProject",
            exists=f"{machine.name} may be running there, at ${machine.price:.2f}/h, until its deadline.",
            next_command=f"export GOOGLE_CLOUD_PROJECT={project}",
        )

    def principal(self) -> str:
        return self._calls.principal

    def vouch(self, machine: Machine, host_keys: Sequence[str]) -> None:  # noqa: ARG002
        raise made_there(self.name, machine)

    # ------------------------------------------------------------ making

    def _made(self, spec: MachineSpec) -> Machine | None:
        """Create the machine; None if Google answered with the operation of an earlier machine, so that a
        new request id is needed.
        """
        place = f"{machine_name(spec)}/{spec.offer.zone}"
        identity = call_id(spec, self._lives.get(place, 0))
        body = self._body(spec, identity)
        asked = datetime.now(UTC)
        try:
            begun = self._calls.insert(spec.offer.zone, body, identity)
        except ProviderError as error:
            return self._despite(error, spec)
        with undecided():
            ended = self._calls.inserted(spec.offer.zone, begun)
        refusal = of_operation(ended)
        if refusal is not None:
            self._lives[place] = self._lives.get(place, 0) + 1
            if operations.is_remembered(begun, asked):
                return None
            return self._despite(self._calls.refusal(refusal, INSERT), spec)
        there = self._appearing(spec)
        if there is not None:
            return seen.machine(there, self._calls.project)
        if not operations.is_done(ended):
            message = f"Google has not created {machine_name(spec)} yet, and gave no reason."
            raise ProviderError(Fault.TRANSIENT, message, code="StillMaking")
        self._lives[place] = self._lives.get(place, 0) + 1
        if not operations.is_remembered(begun, asked):
            self._require_not_taken_back(spec, ended)
        return None

    def _require_not_taken_back(self, spec: MachineSpec, insert: Mapping[str, Any]) -> None:
        """Raise ProviderError if Google created the machine and preempted it before it was first seen."""
        name, zone = machine_name(spec), spec.offer.zone
        with undecided():
            done = self._calls.done_to(zone, str(insert["targetId"]))
        ending = endings.ending_of(done, name, zone)
        if ending.fault is not None:
            raise ProviderError(ending.fault, ending.message, code=ending.code)

    def _appearing(self, spec: MachineSpec) -> Mapping[str, Any] | None:
        """Wait for the machine, which may be listed a moment after its operation is done."""
        end = time.monotonic() + _APPEARING_S
        while True:
            with undecided():
                there = self._calls.instance(spec.offer.zone, machine_name(spec))
            if there is not None or time.monotonic() >= end:
                return there
            time.sleep(0.2)

    def _body(self, spec: MachineSpec, identity: str) -> dict[str, Any]:
        """Return the request body for one request id; a repeated call sends the same."""
        if identity not in self._bodies:
            image, setting = self._image(spec), self._setting
            login = self._os_login.given(spec, setting.os_login)
            self._bodies[identity] = request.instance(spec, setting, image, datetime.now(UTC), login)
        return self._bodies[identity]

    def _image(self, spec: MachineSpec) -> images.Image:
        families = images.families(spec.offer)
        key = spec.image or repr(families)
        if key not in self._images:
            self._images[key] = (
                self._calls.image(spec.image) if spec.image else images.resolve(families, self._calls.newest)
            )
        return self._images[key]

    def _despite(self, error: ProviderError, spec: MachineSpec) -> Machine:
        """Return the machine if another call created it meanwhile; otherwise raise the error."""
        if error.fault is Fault.CONFLICT:
            there = self._appearing(spec)
            if there is not None:
                return self._adopted(there, spec)
            # The name belongs to a machine that is being created or deleted; a later call will see which.
            raise ProviderError(Fault.TRANSIENT, error.message, code=error.code)
        raise self._elsewhere(error, spec)

    def _elsewhere(self, error: ProviderError, spec: MachineSpec) -> ProviderError:
        """Return `error`, as CAPACITY if the zone does not sell the type: then the next zone is tried."""
        attached = request.attachment(spec.offer)
        if error.fault is not Fault.INVALID or self._calls.sells(spec.offer, attached):
            return error
        gpu = f" with {attached}" if attached else ""
        message = f"{spec.offer.zone} has no machines of the type {spec.offer.instance_type}{gpu}."
        return ProviderError(Fault.CAPACITY, message, code="TypeNotInZone")

    def _adopted(self, instance: Mapping[str, Any], spec: MachineSpec) -> Machine:
        """Return the machine of that name if it was created for the same spec; otherwise raise CONFLICT."""
        found = seen.machine(instance, self._calls.project)
        wanted = {key: value for key, value in spec.labels.items() if key not in (LABEL_EXPIRES, LABEL_OWNER)}
        if not seen.is_ours(instance) or not wanted.items() <= found.labels.items():
            raise ProviderError(
                Fault.CONFLICT,
                f"Another machine with the name {found.name} and other labels exists in {found.zone}.",
                code="NameTaken",
                exists=f"orch does not delete {found.name} in {found.zone}.",
                next_command=f"gcloud compute instances describe {found.name} --zone={found.zone}",
            )
        if found.state is MachineState.STOPPING:
            message = f"The machine {found.name} is being deleted; its name is free afterwards."
            raise ProviderError(Fault.TRANSIENT, message, code="BeingEnded")
        return found

    # ------------------------------------------------------------ reaching

    def _ready(self, machine: Machine, instance: str) -> bool:
        """Return whether the first boot is over: ssh may answer before the driver is installed."""
        told = self._calls.guest_attributes(machine.zone, machine.id, f"{GUEST_NAMESPACE}/")
        state = next((str(item.get("value", "")) for item in told if item.get("key") == GUEST_STATE), "")
        if state.startswith("failed"):
            raise ProviderError(
                Fault.UNKNOWN,
                f"The first boot of {machine.name} ended with an error: {state}.",
                code="FirstBoot",
                exists=f"{machine.name} is still running, at ${machine.price:.2f}/h, until its deadline.",
                next_command=f"gcloud compute instances get-serial-port-output {machine.name} "
                f"--zone={machine.zone}",
            )
        waited = time.monotonic() - self._first_keys.setdefault(instance, time.monotonic())
        return state == "ready" or waited >= (_BOOTING_S if state else self._silent_s)


def _filter(labels: Labels) -> str:
    """Return a filter by the most selective label; the other labels are compared here."""
    for key in (LABEL_LEASE, *labels):
        if key in labels and labels[key] and is_label(key, labels[key]):
            value = labels[key]
            return f"labels.{key}={value}" if value[0].isalpha() else f'labels.{key}="{value}"'
    return f"labels.{LABEL_LEASE}:*"
