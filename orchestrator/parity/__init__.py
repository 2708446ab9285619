"""Compare two recorded runs: verdict, first stage that differs, suspected cause. Pure apart from reading
files.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.parity.recorded import compare_records
    from orchestrator.parity.verdict import compare, judge

__all__ = ["compare", "compare_records", "judge"]

_HOME = {"compare_records": "recorded", "compare": "verdict", "judge": "verdict"}


def __getattr__(name: str) -> Any:
    """Import the comparison at its first use, because reading one recording does not need it."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value
