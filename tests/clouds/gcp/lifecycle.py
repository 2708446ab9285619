"""The life of an instance: made, run, ended by its guest, its deadline, a preemption or a client."""

from __future__ import annotations

import secrets
import threading
import time
from typing import Any

import yaml

from orchestrator.errors import ProviderError
from tests.clouds import disk_files, driver
from tests.clouds.gcp import operations, placing, shapes
from tests.clouds.gcp.checks import Order
from tests.clouds.gcp.errors import ApiError, Json, OperationError, exists
from tests.clouds.gcp.facts import region_of
from tests.clouds.gcp.faults import OPERATION_KINDS, Fault, Place, quota_exceeded
from tests.clouds.gcp.machines import Machines, Running
from tests.clouds.gcp.metadata import MetadataServer
from tests.clouds.gcp.world import Instance, World, timestamp

_WATCH_S = 0.05


class Lifecycle:
    """Makes and ends the instances of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.machines = Machines(world.state, world.settings)
        self._servers: dict[str, MetadataServer] = {}

    # ------------------------------------------------------------ creation

    def insert(
        self, zone: str, asked: Json, order: Order, fault: Fault | None, request: tuple[str, str]
    ) -> Json:
        """Accept a checked insert; the operation. `fault` is one that strikes once it was accepted."""
        world = self._world
        with world.change():
            if (zone, asked["name"]) in world.instances:
                raise exists(world.path("zones", zone, "instances", asked["name"]))
            shape = shapes.instance(world, zone, asked, order)
            disk = shapes.boot_disk(world, zone, asked, shape, order)
            if (zone, disk["name"]) in world.disks:
                raise exists(world.path("zones", zone, "disks", disk["name"]))
            instance = Instance(zone, shape, time.time() + world.settings.visible_s)
            world.instances[zone, instance.name] = instance

        def effect() -> None:
            try:
                self._provide(instance, disk, order, fault)
            except BaseException:
                with world.change():
                    world.instances.pop((zone, instance.name), None)
                    world.disks.pop((zone, disk["name"]), None)
                raise

        return operations.begin(world, "insert", zone, self._target(instance), effect, request=request)

    def _provide(self, instance: Instance, disk: Json, order: Order, fault: Fault | None) -> None:
        world = self._world
        place = Place(world.settings.project, instance.zone, world.path(*self._below(instance)))
        if fault is not None:
            raise OPERATION_KINDS[fault.kind](fault, place)
        with world.change():
            placing.enter(world, instance)
            self._require_quota(instance, shapes.usage(instance.shape, order), place)
            world.disks[instance.zone, disk["name"]] = disk
        with instance.power:
            if instance.doomed:
                return
            self._become(instance, "STAGING")
            self._boot(instance, order)
            with world.change():
                instance.shape["lastStartTimestamp"] = timestamp()
                instance.shape["cpuPlatform"] = "Intel Cascade Lake"
                end = shapes.termination_time(instance.shape["scheduling"])
                if end is not None:
                    told = {"terminationTimestamp": timestamp(end)}
                    instance.shape["resourceStatus"] = {"scheduling": told}
            self._become(instance, "RUNNING")
            threading.Thread(target=self._watch, args=(instance, end), daemon=True).start()

    def _require_quota(self, instance: Instance, wanted: dict[str, float], place: Place) -> None:
        world = self._world
        for region in (region_of(instance.zone), ""):
            for quota in world.quota(region):
                if (
                    quota["usage"] + wanted.get(quota["metric"], 0.0) > quota["limit"]
                    and quota["metric"] in wanted
                ):
                    raise quota_exceeded(quota["metric"], quota["limit"], place)
        instance.usage = wanted

    def _boot(self, instance: Instance, order: Order) -> None:
        number = int(instance.shape["id"]) % 250 + 2
        if not self._world.settings.machines:
            self._address(instance, f"10.128.0.{number}", f"203.0.113.{number}")
            return
        guest = {
            "cloud_init": order.image.cloud_init,
            "root_login": order.image.root_login,
            "hostkey_s": self._world.settings.hostkey_s,
            "login_s": self._world.settings.login_s,
            "startup_s": self._world.settings.startup_s,
            "cloud_config": _cloud_config(instance.metadata.get("user-data", "")),
            "nvidia_smi": driver.program(order.gpu, order.gpus) if order.gpus and order.image.driver else "",
        }
        identity = f"{instance.name}-{instance.zone}-{secrets.token_hex(2)}"
        try:
            running = self.machines.start(identity, order.disk << 30, guest)
            if order.files is not None:  # it boots once its metadata server answers
                disk_files.lay_out(order.files, running.pid)
        except (ProviderError, RuntimeError) as error:
            message = f"The emulator has no machine: {error}"
            raise OperationError("INTERNAL_ERROR", message, (500, "INTERNAL SERVER ERROR")) from error
        instance.machine = running
        self._address(instance, running.address, running.address)
        self._servers[instance.shape["id"]] = MetadataServer(self._world, instance, running.pid)

    def _address(self, instance: Instance, inside: str, outside: str) -> None:
        with self._world.change():
            for interface in instance.shape["networkInterfaces"]:
                interface["networkIP"] = inside
                for config in interface.get("accessConfigs", []):
                    config["natIP"] = outside

    # ------------------------------------------------------------ ends

    def delete(self, instance: Instance, request: tuple[str, str]) -> Json:
        if instance.shape["deletionProtection"]:
            message = f"Resource cannot be deleted if it's protected against deletion: '{instance.name}'."
            raise ApiError(400, "invalidResourceUsage", message)
        instance.doomed = True
        self._become(instance, "STOPPING")
        return operations.begin(
            self._world,
            "delete",
            instance.zone,
            self._target(instance),
            lambda: self._remove(instance),
            request=request,
        )

    def stop(self, instance: Instance, request: tuple[str, str]) -> Json:
        self._become(instance, "STOPPING")
        return operations.begin(
            self._world,
            "stop",
            instance.zone,
            self._target(instance),
            lambda: self._halt(instance),
            request=request,
        )

    def preempt(self, instance: Instance, notice_s: float) -> None:
        """Take a Spot instance away: told at once, gone `notice_s` seconds later at the latest."""
        if not instance.shape["scheduling"]["preemptible"]:
            raise ApiError(400, "badRequest", f"{instance.name} is no Spot VM: it is never preempted.")
        self._end(instance, "preempted", notice_s)
        message = "Instance was preempted."
        operations.done(
            self._world, "compute.instances.preempted", instance.zone, self._target(instance), message
        )

    def end_all(self) -> None:
        """End every machine; the world is about to go."""
        self._world.stopping.set()
        for server in list(self._servers.values()):
            server.stop()
        self._world.network.set({})
        if self._world.settings.machines:
            self.machines.end_all()

    def _watch(self, instance: Instance, end: float | None) -> None:
        """Until the instance has ended by whatever means."""
        world = self._world
        while not world.stopping.wait(_WATCH_S) and not instance.doomed:
            if instance.shape["status"] == "TERMINATED":
                return
            if end is not None and time.time() >= end and not instance.ending:
                self._end(instance, "deadline", world.settings.soft_off_s)
            if self._is_off(instance):
                self._ended(instance)
                return

    def _is_off(self, instance: Instance) -> bool:
        if isinstance(instance.machine, Running):
            return not instance.machine.alive()
        return bool(instance.ending)

    def _end(self, instance: Instance, why: str, notice_s: float) -> None:
        with self._world.change():
            instance.ending = why
        if isinstance(instance.machine, Running):
            try:
                self.machines.local.preempt(instance.machine.machine, notice_s)
            except ProviderError:  # it went off by itself just now
                pass

    def _ended(self, instance: Instance) -> None:
        """Nobody asked us for this end: the guest, a deadline or a preemption."""
        if instance.ending and instance.shape["scheduling"].get("instanceTerminationAction") == "DELETE":
            instance.doomed = True
            self._become(instance, "STOPPING")
            self._remove(instance)
            return
        self._become(instance, "STOPPING")
        self._halt(instance)

    def _halt(self, instance: Instance) -> None:
        with instance.power:
            self._keep_disk(instance)
            self._plug_off(instance)
            with self._world.change():
                instance.shape["lastStopTimestamp"] = timestamp()
                instance.usage = {k: v for k, v in instance.usage.items() if k == "INSTANCES"}
            self._become(instance, "TERMINATED")

    def _remove(self, instance: Instance) -> None:
        world = self._world
        with instance.power:
            self._plug_off(instance)
            with world.change():
                if world.instances.get((instance.zone, instance.name)) is instance:
                    del world.instances[instance.zone, instance.name]
                for disk in instance.shape["disks"]:
                    key = (instance.zone, disk["source"].rpartition("/")[2])
                    if disk["autoDelete"]:
                        world.disks.pop(key, None)
                        world.disk_files.pop(key, None)
                    elif key in world.disks:
                        world.disks[key]["users"] = []

    def _keep_disk(self, instance: Instance) -> None:
        """Its disk outlives it; that of a guest that powered itself off is gone, and nobody reads it."""
        machine = instance.machine
        if isinstance(machine, Running) and machine.alive():
            kept = disk_files.copied(machine.pid, "gcp", self._world.state)
            with self._world.change():
                self._world.disk_files[instance.zone, instance.name] = kept

    def _plug_off(self, instance: Instance) -> None:
        server = self._servers.pop(instance.shape["id"], None)
        if server is not None:
            server.stop()
        if isinstance(instance.machine, Running):
            instance.serial = self.serial(instance)
            self.machines.end(instance.machine)

    def serial(self, instance: Instance) -> str:
        if isinstance(instance.machine, Running) and instance.machine.alive():
            return self.machines.console(instance.machine)
        return instance.serial

    def _become(self, instance: Instance, status: str) -> None:
        with self._world.change():
            if not instance.doomed or status == "STOPPING":
                instance.shape["status"] = status

    def _below(self, instance: Instance) -> tuple[str, ...]:
        return ("zones", instance.zone, "instances", instance.name)

    def _target(self, instance: Instance) -> tuple[str, str]:
        return "/".join(self._below(instance)), instance.shape["id"]


def _cloud_config(user_data: str) -> Any:
    """The guest's standard library reads no YAML, so that is done here; None for what is no mapping."""
    if not user_data.startswith("#cloud-config"):
        return None
    try:
        found = yaml.safe_load(user_data)
    except yaml.YAMLError:
        return None
    return found if isinstance(found, dict) else {}
