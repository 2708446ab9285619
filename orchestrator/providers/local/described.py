"""Convert between a machine's record on disk and model.Machine."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from orchestrator.model import FAR_BASE, Machine, MachineSpec, MachineState
from orchestrator.providers.local import processes, seed
from orchestrator.providers.local.store import Folder, Guest, Record, boottime, machine_name
from orchestrator.providers.local.survey import Survey


def described(folder: Folder) -> Machine | None:
    record, guest = folder.record(), folder.guest()
    if record is None:
        return None
    if guest is None or (not guest.ready and processes.Process(guest.pid, guest.start).alive()):
        return machine_of(record, MachineState.PENDING, guest)
    alive = processes.Process(guest.pid, guest.start).alive()
    return machine_of(record, MachineState.RUNNING if alive else MachineState.STOPPING, guest)


def machine_of(record: Record, state: MachineState, guest: Guest | None) -> Machine:
    return Machine(
        provider="local",
        id=record.id,
        name=record.name,
        state=state,
        labels=dict(record.labels),
        instance_type=record.instance_type,
        zone=record.zone,
        price=0.0,
        created_at=datetime.fromisoformat(record.created_at),
        deadline=datetime.fromisoformat(record.deadline),
        detail=_detail(record, guest),
        age=record.age,
    )


def _detail(record: Record, guest: Guest | None) -> dict[str, Any]:
    """Return the `detail` of a machine. `base`: the absolute path of orch's folder on it."""
    return {
        "tier": record.tier,
        "base": record.base,
        "cpus": record.cpus,
        "memory": record.memory,
        "disk": record.disk,
        "image": record.image or None,
        "address": guest.address if guest else None,
    }


def record_of(spec: MachineSpec, found: Survey, folder: Folder) -> Record:
    own, now = found.tier == "process", datetime.now(UTC)
    return Record(
        id=folder.id,
        name=machine_name(spec),
        tier=found.tier,
        cpus=spec.offer.cpus,
        memory=spec.offer.memory,
        disk=spec.disk,
        gpus=spec.offer.accelerator_count,
        instance_type=spec.offer.instance_type,
        zone=spec.offer.zone,
        labels=dict(spec.labels),
        created_at=now.isoformat(),
        deadline=spec.deadline.astimezone(UTC).isoformat(),
        ssh_public_key=spec.ssh_public_key,
        user_data=spec.user_data,
        user=seed.current_user() if own else "root",
        base=str(folder.path / "base") if own else FAR_BASE,
        due=boottime() + spec.seconds(now),
        image=spec.image or "",
    )
