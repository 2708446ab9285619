"""The verdict on two runs as a letter: what was found, what was ruled out, why, what to do, how it will go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.report.run import parity_line


def letter(parity: Mapping[str, Any]) -> str:
    """The verdict on one screen."""
    return parity_line(parity)
