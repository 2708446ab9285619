"""The provider `aws`: create, find, list and delete EC2 instances."""

from __future__ import annotations

import functools
import importlib.util
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import (
    Ending,
    Endpoint,
    Labels,
    Machine,
    MachineSpec,
    MachineState,
    Need,
    NotYet,
    Offer,
)
from orchestrator.providers import tunnels
from orchestrator.providers.aws import (
    alarms,
    endings,
    freeplan,
    hostkey,
    images,
    network,
    placement,
    request,
    reservations,
    tags,
    tunnel,
)
from orchestrator.providers.aws.baking import InstanceImages
from orchestrator.providers.aws.clients import Clients, asking
from orchestrator.providers.aws.grouping import InstanceGroups
from orchestrator.providers.aws.instances import described, identity_of, region_of
from orchestrator.providers.aws.settings import SSM, Settings, read
from orchestrator.providers.aws.zones import catalog_regions, with_zones
from orchestrator.providers.clock import http_time
from orchestrator.providers.local.network import answers_ssh
from orchestrator.providers.regions import list_regions
from orchestrator.providers.retry import RetryingProvider
from orchestrator.providers.undecided import undecided

VISIBLE_WITHIN_S = 180.0
"""Seconds after which EC2 certainly lists a new machine; usually it takes a few."""

_LIVES = 50
_POLL_S = 1.0
_GREETING_S = 2.0
_DEAD_TOKEN = "IdempotentInstanceTerminated"
_OTHER_REQUEST = "IdempotentParameterMismatch"


def open_aws(state: Path | None = None) -> RetryingProvider:  # noqa: ARG001 (AWS keeps everything)
    if importlib.util.find_spec("boto3") is None:
        raise ProviderError(
            Fault.INVALID,
            "boto3 is not installed here.",
            code="NoBoto3",
            next_command="pip install 'orch-train[aws]'",
        )
    return RetryingProvider(AwsProvider(read(os.environ)))


class AwsProvider(InstanceImages, InstanceGroups):
    """EC2 instances. Each call is tried once; RetryingProvider repeats it if that is safe."""

    name = "aws"
    list_lag_s = 90.0

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._clients = Clients(settings, catalog_regions)
        self._asked: dict[tuple[str, int, str], tuple[MachineSpec, dict[str, Any]]] = {}
        self._made: dict[str, float] = {}
        self._tunnels = tunnels.Tunnels()

    # ------------------------------------------------------------ the protocol

    def offers(self, need: Need) -> Sequence[Offer]:
        """Return the catalog's offers in the enabled regions and their zones, cheapest first."""
        from orchestrator import catalog

        found = catalog.offers(need, clouds=("aws",))
        return with_zones(self._clients, [offer for offer in found if offer.region in self._clients.regions])

    def create(self, spec: MachineSpec) -> Machine:
        return self.guard(self._created(spec), spec.seconds(datetime.now(UTC)))

    def guard(self, machine: Machine, lasts: float) -> Machine:
        alarmed = alarms.arm(self._clients, region_of(machine), identity_of(machine), lasts)
        return replace(machine, detail={**machine.detail, **alarmed})

    def forget(self, machine: Machine) -> None:
        alarms.remove(self._clients, region_of(machine), identity_of(machine))

    def _created(self, spec: MachineSpec) -> Machine:
        region = request.region_of(spec)
        self._clients.require_region(region)
        if self._settings.address == SSM:
            tunnels.require(tunnel.PROGRAMS, tunnel.PURPOSE)
        found = self._find(region, [{"Name": f"tag:{tags.MACHINE}", "Values": [tags.name_of(spec)]}])
        if found:
            return found
        if spec.group and spec.offer.zone:
            placement.require(self._clients, region, spec.offer.zone, spec.group)
        wanted = self._request(spec, region)
        for life in range(_LIVES):
            made = self._run(spec, region, {**wanted, "ClientToken": request.client_token(spec, life)})
            if made:
                self._made[made.id] = time.monotonic()
                return made
        raise ProviderError(
            Fault.CONFLICT, f"{tags.name_of(spec)} has ended {_LIVES} times today.", code=_DEAD_TOKEN
        )

    def list(self, labels: Labels) -> Sequence[Machine]:
        """List the machines of every region in which one could be."""
        filters = tags.filters(labels)
        return list_regions(self._clients.regions, lambda region: self._listed(region, filters))

    def find(self, machine: Machine) -> Machine | None:
        """Find a machine by its id; EC2 shows terminated ones for an hour."""
        identity, region = identity_of(machine), region_of(machine)
        instance = self._described(region, identity)
        if instance is None and self._is_young(machine):
            raise self._unknown_yet(machine, "InvalidInstanceID.NotFound")
        return tags.machine(instance, region) if instance and tags.exists(instance) else None

    def delete(self, machine: Machine) -> None:
        identity, region = identity_of(machine), region_of(machine)
        try:
            with asking(self._clients, region):
                self._clients.ec2(region).terminate_instances(InstanceIds=[identity])
        except ProviderError as error:
            if error.code != "InvalidInstanceID.NotFound":
                self._require_ending(machine, region, error)
                return
            if time.monotonic() - self._made.get(machine.id, -VISIBLE_WITHIN_S) < VISIBLE_WITHIN_S:
                raise self._unknown_yet(machine, error.code) from error

    def _is_young(self, machine: Machine) -> bool:
        """Return whether the machine is so new that EC2 may not find it by its id yet."""
        here = time.monotonic() - self._made.get(machine.id, -VISIBLE_WITHIN_S)
        there = abs(time.time() - machine.created_at.timestamp())
        return min(here, there) < VISIBLE_WITHIN_S

    def _unknown_yet(self, machine: Machine, code: str) -> ProviderError:
        return ProviderError(
            Fault.TRANSIENT,
            f"EC2 has just created {machine.id} and does not list it yet.",
            code=code,
            exists=f"{machine.id} at ${machine.price:.2f}/h",
        )

    def endpoint(self, machine: Machine) -> Endpoint | NotYet | None:
        """Raise NotYet until the ssh server answers, which is long after EC2 reports "running"."""
        identity, region = identity_of(machine), region_of(machine)
        instance = self._described(region, identity)
        if instance is None or instance["State"]["Name"] != "running":
            return None
        address, proxy = self._way_to(instance, region)
        if not address:
            return NotYet("its address")
        if not self._greets(identity, address, proxy):
            return NotYet("its ssh server")
        keys = self._host_keys(instance, region)
        user = tags.tags_in(instance).get(tags.LOGIN, "root")
        return Endpoint(address, 22, user, keys, proxy) if keys else NotYet("its host keys")

    def _greets(self, identity: str, address: str, proxy: Sequence[str]) -> bool:
        if proxy:
            return self._tunnels.is_open(identity, proxy)
        return answers_ssh(address, 22, _GREETING_S)

    def _way_to(self, instance: dict[str, Any], region: str) -> tuple[str, tuple[str, ...]]:
        """Return the address and the tunnel. The address is "" if there is none yet, or if it is not used."""
        public = instance.get("PublicIpAddress")
        if public or self._settings.public:
            return str(public or ""), ()
        if self._settings.address == SSM:
            tunnels.require(tunnel.PROGRAMS, tunnel.PURPOSE)
            return instance["InstanceId"], tunnel.proxy_command(instance["InstanceId"], region)
        return str(instance.get("PrivateIpAddress") or ""), ()

    def ending(self, machine: Machine) -> Ending | None:
        """Return how the machine ended, which EC2 shows for an hour. An unknown machine may be too new to be
        listed.
        """
        region = region_of(machine)
        instance = self._described(region, identity_of(machine))
        return endings.ending_of(instance, region) if instance else None

    def require_reach(self, machine: Machine) -> None:
        self._clients.require_region(region_of(machine))

    def _require_ending(self, machine: Machine, region: str, error: ProviderError) -> None:
        """Ignore the refusal to terminate an instance that is shutting down already."""
        instance = self._described(region, machine.id) if error.fault is Fault.INVALID else None
        if instance is None or not tags.is_ending(instance):
            raise error

    def principal(self) -> str:
        return self._principal

    @functools.cached_property
    def _principal(self) -> str:
        """Return the caller's ARN; "" for a session with a generated name, which is different each time."""
        arn = self._clients.identity()
        return tags.lasting_principal(arn)

    # ------------------------------------------------------------ host keys

    def vouch(self, machine: Machine, host_keys: Sequence[str]) -> None:
        """Record `host_keys` as the machine's valid host keys: its only one, or its next and its present one.

        Returns when EC2 shows the new tags. `host_keys[0]` must have been read over a connection that the
        machine's former key verified.
        """
        region = region_of(machine)
        wanted = {
            tags.HOST_KEY: host_keys[-1],
            tags.NEXT_KEY: host_keys[0] if len(host_keys) > 1 else "",
            tags.PROOF: tags.INJECTED if len(host_keys) > 1 else tags.RENEWED,
        }
        self._tag(machine.id, region, wanted)

    def _tag(self, identity: str, region: str, wanted: dict[str, str]) -> None:
        with asking(self._clients, region):
            self._clients.ec2(region).create_tags(
                Resources=[identity], Tags=[{"Key": key, "Value": value} for key, value in wanted.items()]
            )
        end = time.monotonic() + VISIBLE_WITHIN_S
        while time.monotonic() < end:
            instance = self._described(region, identity)
            if instance and wanted.items() <= tags.tags_in(instance).items():
                return
            time.sleep(_POLL_S)
        raise ProviderError(
            Fault.TRANSIENT,
            f"EC2 does not show the new host key of {identity} yet.",
            exists=f"{identity} is still running.",
        )

    def _host_keys(self, instance: dict[str, Any], region: str) -> tuple[str, ...]:
        ours = tags.tags_in(instance)
        known = tuple(key for name in (tags.NEXT_KEY, tags.HOST_KEY) if (key := ours.get(name)))
        if known or ours.get(tags.PROOF) != tags.CONSOLE:
            return known
        with asking(self._clients, region):
            answer = self._clients.ec2(region).get_console_output(
                InstanceId=instance["InstanceId"], Latest=True
            )
        printed = hostkey.from_console(answer.get("Output") or "")
        ed25519 = [key for key in printed if key.startswith("ssh-ed25519 ")]
        if ed25519:  # kept: later console output may come from any program on the machine
            self._tag(instance["InstanceId"], region, {tags.HOST_KEY: ed25519[0]})
        return tuple(ed25519[:1])

    # ------------------------------------------------------------ create, step by step

    def _request(self, spec: MachineSpec, region: str) -> dict[str, Any]:
        """Return the parameters of RunInstances: the same for the same spec, host key and image."""
        key = (spec.id, spec.attempt, spec.offer.zone)
        before = self._asked.get(key)
        if before and before[0] == spec:
            return before[1]
        image, plugged = self._found(spec, region)
        user = self._settings.user or image.user
        if not user:
            raise ProviderError(
                Fault.INVALID,
                f"The login user of the image {image.name} is not known; set ORCH_AWS_USER.",
                code="UnknownUser",
            )
        injected = hostkey.make() if self._settings.inject else None
        block = reservations.is_block(self._clients, region, spec.reservation)
        wanted = request.run_instances(spec, image, plugged, user=user, host_key=injected, is_block=block)
        self._asked[key] = (spec, wanted)
        return wanted

    def _found(self, spec: MachineSpec, region: str) -> tuple[request.Image, request.Network]:
        """Look up the image and the network in parallel."""
        chosen = spec.image or self._settings.image
        with ThreadPoolExecutor(max_workers=1) as pool:
            image = pool.submit(images.find, self._clients, region, spec, chosen)
            plugged = network.find(self._clients, region, spec.offer.zone, self._settings)
            return image.result(), plugged

    def _run(self, spec: MachineSpec, region: str, wanted: dict[str, Any]) -> Machine | None:
        """Return the instance of this client token; None if it was terminated."""
        offer = spec.offer
        try:
            with asking(
                self._clients,
                region,
                instance_type=offer.instance_type,
                zone=offer.zone,
                spot=offer.spot,
            ):
                answer = self._clients.ec2(region).run_instances(**wanted)
        except ProviderError as error:
            if error.code == _DEAD_TOKEN:
                return None
            if error.code == _OTHER_REQUEST:
                with undecided():
                    return self._earlier(spec, region, wanted["ClientToken"])
            raise freeplan.explained(error, self._clients, offer.instance_type) from error
        instance = answer["Instances"][0]
        return None if tags.is_ending(instance) else tags.machine(instance, region)

    def _earlier(self, spec: MachineSpec, region: str, token: str) -> Machine | None:
        """Return the machine that another call, or an interrupted one, created with this token."""
        end = time.monotonic() + VISIBLE_WITHIN_S
        while time.monotonic() < end:
            found = self._instances(region, [{"Name": "client-token", "Values": [token]}])
            living = [instance for instance, _ in found if not tags.is_ending(instance)]
            if living:
                return tags.machine(living[0], region)
            if found:
                return None
            time.sleep(_POLL_S)
        raise ProviderError(
            Fault.CONFLICT,
            f"{tags.name_of(spec)} was requested before with other parameters, and EC2 does not list it.",
            code=_OTHER_REQUEST,
            exists=f"A {spec.offer.instance_type} in {spec.offer.zone} may be running, at "
            f"${spec.offer.price:.2f}/h.",
            next_command="orch status --live",
        )

    # ------------------------------------------------------------ asking EC2

    def _find(self, region: str, filters: Sequence[dict[str, Any]]) -> Machine | None:
        """Return the oldest machine that is not ending, so that all callers choose the same one."""
        found = [one for one in self._listed(region, filters) if one.state is not MachineState.STOPPING]
        return min(found, key=lambda machine: (machine.created_at, machine.id), default=None)

    def _listed(self, region: str, filters: Sequence[dict[str, Any]]) -> Sequence[Machine]:
        found = self._instances(region, filters)
        return [tags.machine(instance, region, now) for instance, now in found if tags.exists(instance)]

    def _instances(
        self, region: str, filters: Sequence[dict[str, Any]]
    ) -> Sequence[tuple[dict[str, Any], datetime | None]]:
        """Return the instances, each with the time of the answer by the clock of EC2."""
        with asking(self._clients, region):
            pages = self._clients.ec2(region).get_paginator("describe_instances")
            return [
                (instance, _told_at(page))
                for page in pages.paginate(Filters=list(filters), PaginationConfig={"PageSize": 1000})
                for reservation in page["Reservations"]
                for instance in reservation["Instances"]
            ]

    def _described(self, region: str, identity: str) -> dict[str, Any] | None:
        return described(self._clients, region, identity)


def _told_at(answer: Mapping[str, Any]) -> datetime | None:
    """Return the time of an answer, by the clock of EC2."""
    return http_time(answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date"))
