"""What the environment of a run asks of observation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Mapping, Optional

FORMAT = 1
"""Version of every line and file under observe/."""

MAX_TENSOR = 4 << 20
"""Bytes: larger tensors are kept as digest, norm and sample instead of whole."""

MAX_TOTAL = 96 << 20
"""Bytes of tensors kept whole in one run; then as above."""

MAX_REPLAYED = 192 << 20
"""Bytes of batches and initial weights kept whole in one run beside that: another run can be given them."""

SAMPLE = 16384
"""Elements of the strided sample that stands for a tensor which is not kept."""

MAX_ROWS = 4096
"""Records of one batch whose digests are listed one by one."""


@dataclass(frozen=True)
class Settings:
    """`directory` receives the recording of the first `steps` steps, and of `light` further ones as
    fingerprints; `stop` ends the process after them.

    `impose_batch` and `impose_weights` are recordings (…/observe) whose batches the observed steps are
    given instead of their own, and whose initial weights the model is given before its first step; with
    `impose_slots` the optimizer, too, and only what that recording names. What could not be imposed is said
    in status.json, under not_compared.
    """

    directory: Path
    steps: int
    stop: bool = False
    light: int = 0
    impose_batch: Optional[Path] = None
    impose_weights: Optional[Path] = None
    impose_slots: bool = False


def from_environment(environ: Mapping[str, str]) -> Optional[Settings]:
    """The wish in ORCH_OBSERVE_* and ORCH_IMPOSE_*, None where there is none. A malformed number counts as
    none."""
    directory = environ.get("ORCH_OBSERVE_DIR", "")
    steps = _count(environ.get("ORCH_OBSERVE_STEPS", ""))
    if not directory or not steps:
        return None
    return Settings(
        Path(directory),
        steps,
        stop=environ.get("ORCH_OBSERVE_STOP") == "1",
        light=_count(environ.get("ORCH_OBSERVE_LIGHT", "")),
        impose_batch=_path(environ.get("ORCH_IMPOSE_BATCH", "")),
        impose_weights=_path(environ.get("ORCH_IMPOSE_WEIGHTS", "")),
        impose_slots=environ.get("ORCH_IMPOSE_SLOTS") == "1",
    )


def _count(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else 0


def _path(text: str) -> Optional[Path]:
    return Path(text) if text else None
