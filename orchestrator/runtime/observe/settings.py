"""Settings of an observation, from the environment of the run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Mapping, Optional

FORMAT = 1
"""Version of every line and file under observe/."""

MAX_TENSOR = 4 << 20
"""Bytes: of larger tensors, only digest, norm and a sample are stored."""

MAX_TOTAL = 96 << 20
"""Maximum bytes of complete tensors that are stored in one run; of the rest as above."""

MAX_REPLAYED = 192 << 20
"""Maximum bytes of complete batches and initial weights in addition, which can be imposed on another run."""

SAMPLE = 16384
"""Maximum elements of the strided sample that is stored instead of a tensor."""

MAX_ROWS = 4096
"""Maximum number of records of a batch whose digests are listed one by one."""


@dataclass(frozen=True)
class Settings:
    """`directory` receives the recording of the first `steps` steps, and fingerprints of `light` further
    ones; `stop` ends the process after them.

    `impose_batch` and `impose_weights` are recordings (…/observe): the observed steps get the batches of the
    first, the model the initial weights of the second before its first step; with `impose_slots` the
    optimizer gets its slots, too, and only what that recording names is imposed. What could not be imposed is
    listed in status.json, under not_compared.
    """

    directory: Path
    steps: int
    stop: bool = False
    light: int = 0
    impose_batch: Optional[Path] = None
    impose_weights: Optional[Path] = None
    impose_slots: bool = False


def from_environment(environ: Mapping[str, str]) -> Optional[Settings]:
    """Return the settings in ORCH_OBSERVE_* and ORCH_IMPOSE_*; None if no observation is requested. An
    invalid number counts as absent."""
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
