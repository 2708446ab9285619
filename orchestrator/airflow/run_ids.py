"""The run id of a task: the same for every try of one task in one run of its DAG."""

from __future__ import annotations

import hashlib
import re

_LONGEST = 100
_DIGEST = 8
_NONE = -1
"""The map index of a task that is not mapped."""


def run_id_of(dag_id: str, task_id: str, dag_run_id: str, map_index: int = _NONE) -> str:
    """A run id from what identifies the task in Airflow, so that a retry continues the run of the try before.

    Airflow's id of a DAG run contains the logical date of a scheduled one. Characters that a run id cannot
    have become "-"; a digest of the original names keeps ids apart that would then be equal or too long.
    """
    names = [dag_id, task_id, dag_run_id, *([str(map_index)] if map_index != _NONE else [])]
    digest = hashlib.sha256("\n".join(names).encode()).hexdigest()[:_DIGEST]
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", ".".join(names)).lstrip("._-")
    return f"{plain[: _LONGEST - _DIGEST - 1].rstrip('._-') or 'run'}-{digest}"
