"""Run a profile as a task of Apache Airflow: `OrchRunOperator`.

Needs the extra `airflow`. Airflow is imported only when a name of this package is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.airflow.operator import OrchRunOperator
    from orchestrator.airflow.trigger import OrchRunTrigger

__all__ = ["OrchRunOperator", "OrchRunTrigger"]

_HOME = {
    "OrchRunOperator": "orchestrator.airflow.operator",
    "OrchRunTrigger": "orchestrator.airflow.trigger",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'orchestrator.airflow' has no attribute {name!r}")
    try:
        return getattr(import_module(_HOME[name]), name)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "airflow":
            raise
        raise ImportError(
            f"{name} needs Apache Airflow 3.3 or later in this environment: "
            "pip install 'orch-train[airflow]'",
            name="airflow",
        ) from error
