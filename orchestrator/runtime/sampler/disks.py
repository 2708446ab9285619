"""Activity and properties of the machine's disks, and their limits where known."""

# Close to the kernel: descriptors, modes and races need os calls, not pathlib.
# ruff: noqa: PTH110, PTH118, PTH208

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence

from ..processes import read

_SECTOR = 512
_MOST = 4
"""Maximum number of disks in a sample: the most active ones."""

_SYNTHETIC = ("loop", "ram", "zram", "fd", "sr", "nbd")
_GIB = 1 << 30


@dataclass(frozen=True)
class Moved:
    """Counters of one disk: operations, bytes, milliseconds spent in operations, and milliseconds that it was
    busy.
    """

    reads: int
    read: int
    read_ms: int
    writes: int
    written: int
    write_ms: int
    busy_ms: int

    def since(self, before: Moved) -> List[int]:
        return [max(0, now - getattr(before, name)) for name, now in vars(self).items()]


class Disks:
    """Every whole disk of the machine, since the job began. Devices on top of a disk are not counted."""

    def __init__(self, group: Sequence[str] = ()) -> None:
        """Start counting. `group`: folders of the job's control groups for input and output, own first."""
        self._began = _whole(diskstats(read("/proc/diskstats") or ""))
        self._caps = caps(group)

    def facts(self) -> Dict[str, Dict[str, Any]]:
        """Return for each disk: model, bytes, whether it rotates, and `limits`; None if unknown."""
        return {name: self._fact(name) for name in sorted(self._began)[:_MOST]}

    def sample(self) -> Dict[str, List[int]]:
        """Return for each active disk: reads, bytes read, ms of reads, the same of writes, ms busy."""
        now = _whole(diskstats(read("/proc/diskstats") or ""))
        moved = {name: found.since(self._began[name]) for name, found in now.items() if name in self._began}
        busiest = sorted(moved, key=lambda name: moved[name][1] + moved[name][4], reverse=True)[:_MOST]
        return {name: moved[name] for name in sorted(busiest) if any(moved[name])}

    def _fact(self, name: str) -> Dict[str, Any]:
        model = (read(f"/sys/block/{name}/device/model") or "").strip() or None
        sectors = (read(f"/sys/block/{name}/size") or "").strip()
        size = int(sectors) * _SECTOR if sectors.isdigit() else None
        rotates = (read(f"/sys/block/{name}/queue/rotational") or "").strip()
        number = (read(f"/sys/block/{name}/dev") or "").strip()
        return {
            "model": model,
            "size": size,
            "rotational": {"0": False, "1": True}.get(rotates),
            "limits": limits(model, size, self._caps.get(number, {})),
        }


def diskstats(text: str) -> Dict[str, Moved]:
    """Return device -> its counters, from /proc/diskstats."""
    found = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) >= 13:
            reads, _, read_, read_ms, writes, _, written, write_ms, _, busy_ms = map(int, fields[3:13])
            found[fields[2]] = Moved(
                reads, read_ * _SECTOR, read_ms, writes, written * _SECTOR, write_ms, busy_ms
            )
    return found


def limits(model: Optional[str], size: Optional[int], cap: Dict[str, int]) -> Optional[Dict[str, Any]]:
    """Return the maximum `bytes_s` and `ops_s` of the disk, and `basis`: how they are known.

    A control group's limit is exact. A cloud's volume shows its kind, but not what was bought: then it is the
    documented baseline of the kind that orch requests, gp3 on AWS and pd-balanced on Google Cloud.
    """
    if cap:
        return {"bytes_s": cap.get("bytes"), "ops_s": cap.get("ops"), "basis": "a limit of the control group"}
    if model == "Amazon Elastic Block Store":
        return {"bytes_s": 125 << 20, "ops_s": 3000, "basis": "gp3 at its baseline"}
    if model in ("PersistentDisk", "nvme_card-pd") and size:
        gib = size / _GIB
        return {
            "bytes_s": int((140 + 0.28 * gib) * (1 << 20)),
            "ops_s": int(3000 + 6 * gib),
            "basis": f"pd-balanced of {gib:.0f} GiB",
        }
    return None


def caps(folders: Sequence[str]) -> Dict[str, Dict[str, int]]:
    """Return "major:minor" -> the lowest limits of `bytes` and `ops` a second for reading, from files of both
    versions.
    """
    found: Dict[str, Dict[str, int]] = {}
    for folder in folders:
        for line in (read(os.path.join(folder, "io.max")) or "").splitlines():
            device, *fields = line.split()
            for field in fields:
                key, _, value = field.partition("=")
                _tighten(found, device, {"rbps": "bytes", "riops": "ops"}.get(key), value)
        for kind, name in (("bytes", "read_bps_device"), ("ops", "read_iops_device")):
            for line in (read(os.path.join(folder, f"blkio.throttle.{name}")) or "").splitlines():
                device, _, value = line.partition(" ")
                _tighten(found, device, kind, value)
    return found


def _tighten(found: Dict[str, Dict[str, int]], device: str, kind: Optional[str], value: str) -> None:
    if kind and value.strip().isdigit():
        entry = found.setdefault(device, {})
        entry[kind] = min(int(value), entry.get(kind, int(value)))


def _whole(found: Dict[str, Moved]) -> Dict[str, Moved]:
    """Return the disks without partitions, and without devices that store their bytes on others."""
    return {name: moved for name, moved in found.items() if _is_disk(name)}


def _is_disk(name: str) -> bool:
    folder = f"/sys/block/{name}"
    if name.startswith(_SYNTHETIC) or not os.path.exists(folder):
        return False
    try:
        return not os.listdir(f"{folder}/slaves")
    except OSError:
        return True
