"""What a task returns to Airflow, and what it says when it fails."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.errors import OrchError
from orchestrator.model import RunRecord
from orchestrator.model.error_page import page_of


def result_of(record: RunRecord) -> dict[str, Any]:
    """The task's result, for XCom: JSON without NaN, which not every database of Airflow stores.

    `cost_usd` in US dollars. A fact that was not observed is None.
    """
    return {
        "run_id": record.run_id,
        "reason": str(record.exit["reason"]),
        "verdict": (record.parity or {}).get("verdict"),
        "accepted": (record.acceptance or {}).get("accepted"),
        "metrics": _storable(record.metrics),
        "cost_usd": _storable((record.cost or {}).get("usd")),
        "attempts": len(record.attempts),
        "folder": str(record.folder),
    }


def _storable(value: Any) -> Any:
    """`value` as JSON; numbers that are not finite as the texts "nan", "inf" and "-inf"."""
    if isinstance(value, Mapping):
        return {str(key): _storable(each) for key, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_storable(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def failure_text(error: OrchError) -> str:
    """What happened, what still exists and costs, the next command, and whether a retry can help."""
    advice = "A retry may succeed." if error.worth_repeating else "A retry would fail again: not retried."
    lines = (
        error.message,
        error.exists,
        f"Next: {error.next_command}" if error.next_command else None,
        f"Exit code {error.exit_code}. {advice} More: orch explain {page_of(error)}",
    )
    return "\n".join(line for line in lines if line)
