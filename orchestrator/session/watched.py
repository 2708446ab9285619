"""Whether parity can observe a profile's training, judged by the packages of its lock."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orchestrator.errors import UsageError
from orchestrator.model.outcomes import Conclusion
from orchestrator.profile import Profile, load
from orchestrator.session.session import read_lock

_NAMES = frozenset(
    f"{name}{kind}"
    for name in ("tensorflow", "tf-nightly", "intel-tensorflow", "keras", "keras-nightly", "tf-keras")
    for kind in ("", "-cpu", "-gpu", "-macos", "-rocm", "-intel", "-aarch64", "-nightly")
)
"""Packages that bring a module whose training steps are recorded: tensorflow, keras or tf_keras."""


_MODULES = ("tensorflow", "keras", "tf_keras")


def is_observable(profile: Profile) -> bool:
    """Whether the lock, or the project's own folder, has a framework whose steps `--local-parity` records.

    Raises StackError.
    """
    return any(pin.name in _NAMES for pin in read_lock(profile).pins) or _has_own_framework(profile.code.path)


def _has_own_framework(folder: Path) -> bool:
    places = (folder / place for name in _MODULES for place in (f"{name}.py", f"{name}/__init__.py"))
    return any(place.is_file() for place in places)


def require_observable(profile: Profile, without: str, exists: str) -> None:
    """Raise UsageError if `--local-parity` could compare nothing and NOT COMPARED stops the run.

    `without`: the same command without `--local-parity`; `exists`: what was started or exists. Raises
    StackError.
    """
    if not profile.parity.on_mismatch.stops(Conclusion.NOT_COMPARED) or is_observable(profile):
        return
    raise UsageError(
        "--local-parity compares training steps of TensorFlow and Keras, and the lock has neither: the "
        f"first steps of {profile.name} cannot be compared.",
        exists=exists,
        next_command=without,
    )


def next_after_up(profile: str | Path, overrides: Sequence[str] = ()) -> str:
    """The command to suggest after `up`: with parity if there is something to compare."""
    if is_observable(load(Path(profile), overrides=tuple(overrides), files=True)):
        return "orch train --local-parity"
    return "orch train"
