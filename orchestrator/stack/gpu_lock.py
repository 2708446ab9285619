"""Whether a lock can use an NVIDIA GPU, decided by its pins before anything is rented. Pure, except for
`place_of`.

TensorFlow's wheels hold no CUDA: `tensorflow[and-cuda]` pins it as nvidia-* (tensorflow.org, "Install
TensorFlow with pip"), for x86 alone. JAX computes on a GPU by a plug-in, jax-cuda12-plugin ("Installation").
PyTorch names its CUDA in the version, 2.9.0+cu128, or pins it as nvidia-*; +cpu has none.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from packaging.utils import canonicalize_name

from orchestrator.model import Lock, Pin

_PLUGIN = re.compile(r"jax-cuda(\d+)-(?:plugin|pjrt)")
_LIBRARY = re.compile(r"nvidia-[a-z0-9-]+?(?:-cu(\d+))?")
_RUNTIME = re.compile(r"nvidia-cuda-runtime(?:-cu\d+)?")
_LOCAL = re.compile(r"\+cu(\d{2})\d")
_MACHINES = {"x86_64": "x86_64", "arm64": "aarch64"}

OLDEST_DRIVER = {11: (450, 80), 12: (525, 60), 13: (580, 65)}
"""CUDA major version -> oldest Linux driver (CUDA Toolkit release notes, "CUDA Compatibility")."""


class Framework(StrEnum):
    TENSORFLOW = "tensorflow"
    JAX = "jax"
    TORCH = "torch"


class Lack(StrEnum):
    """Why a framework of a lock computes on the CPU."""

    CPU_BUILD = "cpu-build"
    NO_LIBRARIES = "no-libraries"
    NO_SUCH_WHEEL = "no-such-wheel"


@dataclass(frozen=True)
class Unfit:
    """A pin that cannot use the GPU, and why."""

    framework: Framework
    pin: Pin
    lack: Lack


_PACKAGES = {
    "tensorflow": Framework.TENSORFLOW,
    "tensorflow-cpu": Framework.TENSORFLOW,
    "tensorflow-intel": Framework.TENSORFLOW,
    "tensorflow-cpu-aws": Framework.TENSORFLOW,
    "jax": Framework.JAX,
    "torch": Framework.TORCH,
}


def linux_markers(markers: Mapping[str, str], arch: str) -> dict[str, str]:
    """Return the markers of the same Python on a Linux machine of processor `arch`, as the profile names
    it.
    """
    there = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"}
    return {**markers, **there, "platform_machine": _MACHINES[arch]}


def frameworks(pins: Sequence[Pin], backend: str | None = None) -> tuple[Framework, ...]:
    """Return the frameworks among the pins that can train. With Keras's `backend`, return only that one
    if it is pinned.
    """
    found = tuple(dict.fromkeys(_PACKAGES[pin.name] for pin in pins if pin.name in _PACKAGES))
    return tuple(each for each in found if each == backend) or found


def unfit(pins: Sequence[Pin], arch: str, backend: str | None = None) -> Unfit | None:
    """Return the first pin to name in an error if no framework of `pins` can use a GPU on the machine;
    None if one can.
    """
    wanted = frameworks(pins, backend)
    lacking = [each for each in _lacking(pins, arch) if each.framework in wanted]
    able = set(wanted) - {each.framework for each in lacking}
    return lacking[0] if lacking and not able else None


def able(pins: Sequence[Pin], arch: str, backend: str | None = None) -> tuple[Framework, ...]:
    """Return the frameworks that must list the machine's GPUs."""
    lacking = {each.framework for each in _lacking(pins, arch)}
    return tuple(each for each in frameworks(pins, backend) if each not in lacking)


def is_cuda(pin: Pin) -> bool:
    """Return whether a package contains nothing but CUDA: a library of NVIDIA's, or JAX's plug-in."""
    return bool(_LIBRARY.fullmatch(pin.name) or _PLUGIN.fullmatch(pin.name))


def cuda_of(pins: Collection[Pin]) -> int | None:
    """Return the major version of CUDA that the pins contain or require; the newest if there are several."""
    return max(filter(None, map(_cuda, pins)), default=None)


def _cuda(pin: Pin) -> int | None:
    if found := _PLUGIN.fullmatch(pin.name) or _LOCAL.search(pin.version):
        return int(found[1])
    if _RUNTIME.fullmatch(pin.name):
        return int(pin.version.partition(".")[0])
    found = _LIBRARY.fullmatch(pin.name)
    return int(found[1]) if found and found[1] else None


def _lacking(pins: Sequence[Pin], arch: str) -> Iterator[Unfit]:
    libraries = any(_LIBRARY.fullmatch(pin.name) for pin in pins)
    plugin = any(_PLUGIN.fullmatch(pin.name) for pin in pins)
    for pin in pins:
        framework = _PACKAGES.get(pin.name)
        if framework and (lack := _lack(framework, pin, arch, libraries=libraries, plugin=plugin)):
            yield Unfit(framework, pin, lack)


def _lack(framework: Framework, pin: Pin, arch: str, *, libraries: bool, plugin: bool) -> Lack | None:
    if framework is Framework.JAX:
        return None if plugin else Lack.NO_LIBRARIES
    if framework is Framework.TENSORFLOW:
        if pin.name != "tensorflow":
            return Lack.CPU_BUILD
        return Lack.NO_SUCH_WHEEL if arch == "arm64" else None if libraries else Lack.NO_LIBRARIES
    if "+cpu" in pin.version:
        return Lack.CPU_BUILD
    return None if libraries or "+cu" in pin.version else Lack.NO_LIBRARIES


def place_of(lock: Lock, pin: Pin) -> str:
    """Return file:line:column of a pin, counted from 1; only the file if the pin is not found in it."""
    pattern = re.compile(
        r'name\s*=\s*"([^"]+)"' if lock.kind != "requirements" else r"\s*([A-Za-z0-9][\w.-]*)"
    )
    lines = lock.path.read_text("utf-8-sig", errors="replace").splitlines()
    for number, line in enumerate(lines):
        found = pattern.match(line)
        near = "\n".join(lines[number : number + 3])
        if found and canonicalize_name(found[1]) == pin.name and pin.version in near:
            return f"{lock.path}:{number + 1}:{found.start(1) + 1}"
    return str(lock.path)
