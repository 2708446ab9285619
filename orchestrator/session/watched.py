"""Whether parity can observe a profile's training, judged by the packages of its lock."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orchestrator.profile import Profile, load
from orchestrator.session.session import read_lock

_NAMES = frozenset(
    f"{name}{kind}"
    for name in ("tensorflow", "tf-nightly", "intel-tensorflow", "keras", "keras-nightly", "tf-keras")
    for kind in ("", "-cpu", "-gpu", "-macos", "-rocm", "-intel", "-aarch64", "-nightly")
)
"""Packages that bring a module whose training steps are recorded: tensorflow, keras or tf_keras."""


def is_observable(profile: Profile) -> bool:
    """Whether the lock has a framework whose steps `--local-parity` records. Raises StackError."""
    return any(pin.name in _NAMES for pin in read_lock(profile).pins)


def next_after_up(profile: str | Path, overrides: Sequence[str] = ()) -> str:
    """The command to suggest after `up`: with parity if there is something to compare."""
    if is_observable(load(Path(profile), overrides=tuple(overrides), files=True)):
        return "orch train --local-parity"
    return "orch train"
