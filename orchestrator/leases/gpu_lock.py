"""Refuse, before anything is rented, a lock or image with which a rented GPU would not be used."""

from __future__ import annotations

import os
import re
import shlex

from orchestrator import catalog, stack
from orchestrator.errors import ProfileError
from orchestrator.model import Lock, Pin, clouds, is_allowed
from orchestrator.model.needs import is_before_turing
from orchestrator.profile import Profile
from orchestrator.session.session import read_lock
from orchestrator.stack.gpu_lock import (
    OLDEST_DRIVER,
    Framework,
    Lack,
    Unfit,
    able,
    cuda_of,
    linux_markers,
    place_of,
    unfit,
)
from orchestrator.stack.target import applicable

ALLOWED = "lock-without-gpu"
_DRIVER = re.compile(r"nvidia-(\d{3})(?!\d)")
"""Matches names of Google's images, which contain the branch of their driver."""

_WHY = {
    (Framework.TENSORFLOW, Lack.CPU_BUILD): "is built without GPUs",
    (Framework.TENSORFLOW, Lack.NO_LIBRARIES): "is pinned without its CUDA libraries (nvidia-…)",
    (Framework.TENSORFLOW, Lack.NO_SUCH_WHEEL): "has no wheel with CUDA for arm64",
    (Framework.JAX, Lack.NO_LIBRARIES): "is pinned without its CUDA plug-in (jax-cuda12-plugin)",
    (Framework.TORCH, Lack.CPU_BUILD): "is built without GPUs",
    (Framework.TORCH, Lack.NO_LIBRARIES): "is pinned without its CUDA libraries (nvidia-…)",
}
_RECIPE = {
    Framework.TENSORFLOW: "tensorflow[and-cuda]=={}",
    Framework.JAX: "jax[cuda12]=={}",
    Framework.TORCH: "torch=={}",
}


def require_gpu_lock(profile: Profile) -> None:
    """Raise ProfileError, with the place in the lock and a remedy, if the GPU would stay idle."""
    if profile.stack.lock is None or not wants_nvidia(profile):
        return
    lock = read_lock(profile)
    pins = target_pins(profile, lock)
    found = unfit(pins, _arch(profile), keras_backend(profile))
    if found and not is_allowed("lock", ALLOWED, profile.stack.allow):
        raise _without_gpu(profile, lock, found)
    cuda = cuda_of(pins)
    if cuda is not None and able(pins, _arch(profile), keras_backend(profile)):
        _require_old_gpu_served(profile, cuda)
        _require_driver_of_image(profile, cuda)


def wants_nvidia(profile: Profile) -> bool:
    """Whether the profile asks for NVIDIA GPUs, that is, no catalog knows the name as another vendor's."""
    gpu = profile.resources.accelerator
    if gpu is None or clouds.is_here(profile.cloud):
        return False
    kinds = (kind for cloud in catalog.clouds() for kind, _ in catalog.load(cloud).sold)
    vendors = {kind.vendor for kind in kinds if gpu.name and (kind.accelerator or "") == gpu.name.upper()}
    return not vendors or bool(vendors & {"", "nvidia"})


def target_pins(profile: Profile, lock: Lock) -> tuple[Pin, ...]:
    """The lock's pins for the target: Linux, the profile's architecture, this Python."""
    here = stack.local_interpreter(lock, profile.code.path, profile.stack.python)
    return applicable(lock.pins, linux_markers(here.markers, _arch(profile)))


def keras_backend(profile: Profile) -> str | None:
    """KERAS_BACKEND as the run will see it."""
    value = profile.train.env.get("KERAS_BACKEND", os.environ.get("KERAS_BACKEND"))
    return value if isinstance(value, str) else None


def _arch(profile: Profile) -> str:
    return profile.resources.arch or "x86_64"


def _without_gpu(profile: Profile, lock: Lock, found: Unfit) -> ProfileError:
    pin, gpu = found.pin, profile.resources.accelerator
    rented = gpu.name if gpu and gpu.name else "GPU"
    what = _RECIPE[found.framework].format(pin.version.partition("+")[0])
    how = (
        "choose resources.arch: x86_64"
        if found.lack is Lack.NO_SUCH_WHEEL
        else f"ask for {what} instead, lock again, and name that lock as stack.lock"
    )
    return ProfileError(
        f"{pin.name} {pin.version} {_WHY[found.framework, found.lack]}: the rented {rented} would stay "
        f"idle and the training would run on the CPU. To use it, {how}. To rent it anyway: stack.allow: "
        f"[{ALLOWED}].",
        where=place_of(lock, pin),
        next_command=f"orch plan {shlex.quote(str(profile.path))} --set resources.arch=x86_64"
        if found.lack is Lack.NO_SUCH_WHEEL
        else _locking(profile, lock, what),
    )


def _locking(profile: Profile, lock: Lock, what: str) -> str:
    """The command that locks `what` together with the lock's requirements, or uses an existing lock."""
    if lock.kind == "uv.lock":
        return f"uv add --project {shlex.quote(str(lock.path.parent))} {shlex.quote(what)}"
    made = lock.path.with_name("pylock.gpu.toml" if lock.kind == "pylock" else "requirements-gpu.lock")
    if made.is_file() and made != lock.path:
        return shlex.join(["orch", "plan", str(profile.path), "--set", f"stack.lock={made}"])
    made_of = lock.path.with_name("requirements-gpu.in")
    command = ["uv", "pip", "compile", "--universal", "--generate-hashes", str(made_of), "-o", str(made)]
    return f"{shlex.join(command)}    # {made_of.name}: your requirements, with {what}"


def _require_old_gpu_served(profile: Profile, cuda: int) -> None:
    """Refuse CUDA 13 on GPUs older than Turing, which it does not support (CUDA Toolkit 13.0
    release notes).
    """
    gpu = profile.resources.accelerator
    if cuda >= 13 and gpu and gpu.name and is_before_turing(gpu.name):
        raise ProfileError(
            f"{gpu.name} is older than Turing, and CUDA {cuda} of {profile.stack.lock} requires Turing "
            "or newer. "
            "Lock packages for CUDA 12, or rent a newer GPU.",
            where=profile.where("resources.accelerator"),
            next_command=f"orch plan {shlex.quote(str(profile.path))} --set resources.accelerator=T4",
        )


def _require_driver_of_image(profile: Profile, cuda: int) -> None:
    oldest, told = OLDEST_DRIVER.get(cuda), _DRIVER.search(profile.image or "")
    if oldest and told and int(told[1]) < oldest[0]:
        raise ProfileError(
            f"The image's driver is {told[1]}, and CUDA {cuda} of {profile.stack.lock} needs "
            f"{oldest[0]}.{oldest[1]} or newer. Remove `image`, or choose one with such a driver.",
            where=profile.where("image"),
            next_command=f"orch plan {shlex.quote(str(profile.path))}",
        )
