"""Check that the GPUs of a machine can be used.

Otherwise TensorFlow would train on the CPU.
"""

from __future__ import annotations

import time

from orchestrator.errors import StackError
from orchestrator.model import Bound, Completed, clouds
from orchestrator.model.plain import last_words
from orchestrator.session.session import Session

_PATIENCE_S = 60.0
_PAUSE_S = 2.0
_NO_PROGRAM = 127


def require_gpus(session: Session) -> None:
    """Raise StackError if nvidia-smi lists fewer GPUs than the profile asks for, after waiting up to a minute
    for the driver.
    """
    need = session.profile.need().accelerator
    if need is None or clouds.is_here(session.profile.cloud) or _is_of_others(session):
        return
    end = time.monotonic() + _PATIENCE_S
    while True:
        said = session.host.run(("nvidia-smi", "-L"), timeout=60)
        seen = (
            sum(line.startswith(b"GPU ") for line in said.stdout.splitlines()) if not said.returncode else 0
        )
        if seen >= need.count.value:
            return
        if said.returncode in (0, _NO_PROGRAM) or time.monotonic() > end:
            raise _without(session, need.count, seen, said)
        time.sleep(_PAUSE_S)


def _is_of_others(session: Session) -> bool:
    """Whether the accelerators are not from NVIDIA (AMD GPUs, AWS chips), so that nvidia-smi does not list
    them.
    """
    from orchestrator import catalog

    if session.machine.provider not in catalog.clouds():
        return False
    kinds = catalog.load(session.machine.provider).kinds
    vendors = {kind.vendor for kind in kinds if kind.instance_type == session.machine.instance_type}
    return bool(vendors - {"", "nvidia"})


def _without(session: Session, wanted: Bound, seen: int, said: Completed) -> StackError:
    machine, up = session.machine, session.ledger.lease().up_command
    image = machine.detail.get("image", "its image")
    words = last_words(said.stdout + said.stderr, 200) or "nothing"
    why = (
        f"{image} has no driver: there is no nvidia-smi on {machine.name}."
        if said.returncode == _NO_PROGRAM
        else f"nvidia-smi on {machine.name} ({image}) shows {seen} GPUs of {wanted}. Its output: {words}"
    )
    variable = clouds.traits(machine.provider).image_variable
    first, note = (
        f"unset {variable}; " if variable else "",
        "    # or an image with the driver" if variable else "",
    )
    if session.profile.image:
        first, note = "", "    # without `image`, or with an image that has the driver"
    error = StackError(
        f"{machine.instance_type} was rented for its GPU, but {why} Training would run on its CPU.",
        exists=f"{machine.id} is still running, at ${machine.price:.2f}/h, until its deadline.",
        next_command=f"{first}orch down && {up}{note}",
    )
    error.once_ended = f"{first}{up}{note}" if note else None
    return error
