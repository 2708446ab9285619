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

SAMPLE = 16384
"""Elements of the strided sample that stands for a tensor which is not kept."""

MAX_ROWS = 4096
"""Records of one batch whose digests are listed one by one."""


@dataclass(frozen=True)
class Settings:
    """`directory` receives the recording of the first `steps` steps; `stop` ends the process after them."""

    directory: Path
    steps: int
    stop: bool = False


def from_environment(environ: Mapping[str, str]) -> Optional[Settings]:
    """The wish in ORCH_OBSERVE_*, None where there is none. A malformed number counts as none."""
    directory = environ.get("ORCH_OBSERVE_DIR", "")
    count = environ.get("ORCH_OBSERVE_STEPS", "")
    if not directory or not count.isdigit() or int(count) == 0:
        return None
    return Settings(Path(directory), int(count), environ.get("ORCH_OBSERVE_STOP") == "1")
