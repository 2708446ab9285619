"""The CUDA packages of a lock that are useless on a computer without NVIDIA's driver, and take gigabytes.

TensorFlow and JAX compute on the CPU without them, with the same wheels; PyTorch does not load without them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from packaging.utils import canonicalize_name

from orchestrator.model import Pin
from orchestrator.stack.gpu_lock import Framework, frameworks, is_cuda
from orchestrator.stack.logical_lines import logical_lines

DRIVER = Path("/proc/driver/nvidia/version")
"""This file exists if NVIDIA's driver is loaded."""

_BLOCK = re.compile(r"(?m)^(?=\[\[packages\]\]\s*$)")
_NAME = re.compile(r'(?m)^name = "([^"]+)"')


def idle(pins: Sequence[Pin], driver: str | None) -> frozenset[str]:
    """Return the pins that nothing uses on a computer with that driver; "" or None: it has none."""
    if driver or Framework.TORCH in frameworks(pins) or not frameworks(pins):
        return frozenset()
    return frozenset(pin.name for pin in pins if is_cuda(pin))


def without(text: str, kind: str, names: Collection[str]) -> str:
    """Return a lock's text without those packages. `kind`: that of the Lock; for a uv.lock, `text` is
    what `export` returned.
    """
    if kind == "requirements":
        return "".join(f"{line}\n" for line in _requirements(text, names))
    return "".join(block for block in _BLOCK.split(text) if not _is_of(block, names))


def _requirements(text: str, names: Collection[str]) -> Iterator[str]:
    for _, line in logical_lines(text):
        found = re.match(r"[A-Za-z0-9][\w.-]*", line)
        if found is None or canonicalize_name(found[0]) not in names:
            yield line


def _is_of(block: str, names: Collection[str]) -> bool:
    found = _NAME.search(block) if block.startswith("[[packages]]") else None
    return found is not None and canonicalize_name(found[1]) in names
