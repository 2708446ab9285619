"""Which pins of a lock apply on a machine, and which wheels fit there, best first."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from orchestrator.errors import StackError
from orchestrator.model import Pin
from orchestrator.model.plain import plain
from orchestrator.stack.interpreter import Interpreter

_LEGACY = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
_OLDEST_GLIBC = {"x86_64": 5, "i686": 5}


@dataclass(frozen=True)
class Target:
    """One interpreter on one machine. `libc` as confstr reports it: "glibc 2.36", or "" (musl, macOS)."""

    version: str
    flags: str
    system: str
    machine: str
    libc: str
    markers: Mapping[str, str]

    def __str__(self) -> str:
        return f"Python {self.version} on {self.system} {self.machine}" + (
            f" with {self.libc}" if self.libc else ""
        )

    @cached_property
    def tags(self) -> tuple[str, ...]:
        """The wheel tags that fit, best first: "cp311-cp311-manylinux_2_36_x86_64", …"""
        from packaging.tags import compatible_tags, cpython_tags

        short = tuple(int(part) for part in self.version.split(".")[:2])
        name = f"cp{short[0]}{short[1]}"
        platforms = self._platforms()
        fitting = (
            *cpython_tags(short, [name + self.flags], platforms),
            *compatible_tags(short, name, platforms),
        )
        return tuple(dict.fromkeys(map(str, fitting)))

    def _platforms(self) -> list[str]:
        if self.system != "Linux":
            raise StackError(
                f"Wheels can be chosen for Linux machines only, and this one runs {self.system}."
            )
        name, _, version = self.libc.partition(" ")
        if name != "glibc":
            return [f"linux_{self.machine}", *(f"musllinux_1_{minor}_{self.machine}" for minor in (2, 1, 0))]
        newest = int(found[0]) if (found := re.findall(r"\A[0-9]{1,3}\.([0-9]{1,3})", version)) else 0
        oldest = _OLDEST_GLIBC.get(self.machine, 17)
        found = [f"linux_{self.machine}"]
        for minor in range(newest, oldest - 1, -1):
            found.append(f"manylinux_2_{minor}_{self.machine}")
            if minor in _LEGACY:
                found.append(f"{_LEGACY[minor]}_{self.machine}")
        return found


def target_of(interpreter: Interpreter) -> Target:
    return Target(
        interpreter.version,
        interpreter.flags,
        interpreter.system,
        interpreter.machine,
        interpreter.libc,
        dict(interpreter.markers),
    )


def applies(pin: Pin, markers: Mapping[str, str]) -> bool:
    """Return whether `pin` applies in this PEP 508 environment, with no extra and PEP 751's default
    groups.
    """
    from packaging.markers import Marker

    if not pin.marker:
        return True
    # A lock may ask for extras and groups (PEP 751); what is installed here is the project without options.
    environment: dict[str, object] = {"extra": "", "extras": set(), "dependency_groups": set(), **markers}
    try:
        return bool(Marker(pin.marker).evaluate(environment))  # type: ignore[arg-type]
    except ValueError as error:
        raise StackError(
            f"The marker of {pin.name} cannot be evaluated for that platform: {plain(str(error))[:300]}"
        ) from error


def applicable(pins: Sequence[Pin], markers: Mapping[str, str]) -> tuple[Pin, ...]:
    """Return the pins for this environment, sorted by name. Raise StackError if two versions of one
    package apply.
    """
    chosen: dict[str, Pin] = {}
    for pin in pins:
        if not applies(pin, markers):
            continue
        other = chosen.get(pin.name)
        if other and other.version != pin.version:
            raise StackError(f"The lock wants {pin.name} {other.version} and {pin.version} at once.")
        chosen[pin.name] = _joined(other, pin) if other else pin
    return tuple(chosen[name] for name in sorted(chosen))


def _joined(one: Pin, other: Pin) -> Pin:
    return Pin(one.name, one.version, tuple(sorted({*one.hashes, *other.hashes})), one.marker)
