"""What was logged to MLflow of a run, in `.orch/mlflow/<run>.json`: noted before the server is asked."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated

from orchestrator.hosts.atomic import atomic_write
from orchestrator.model.answers import SHORT, Like, Malformed, Most, decoded
from orchestrator.model.files import regular_bytes
from orchestrator.session.project import Project

_FOLDER = "mlflow"
MARK = "orch.id"
"""The tag by which the MLflow run is found again."""


@dataclass(frozen=True)
class Note:
    """One end of a run, or an attempt that trains. `id`: the tag of its MLflow run; `logged`: everything was
    logged; `live`: only metrics were, while it trains. `sent`: the last step that was logged, by
    `curve_key`.
    """

    attempt: int
    id: Annotated[str, Like("[0-9a-f]{32}")]
    logged: bool = False
    live: bool = False
    sent: Annotated[Mapping[str, float], Most(1_000)] = field(default_factory=dict)


@dataclass(frozen=True)
class _Kept:
    ends: Annotated[tuple[Note, ...], Most(1_000)] = ()


@dataclass(frozen=True)
class Notes:
    """The notes of one run."""

    project: Project
    run_id: str

    def of(self, attempt: int) -> Note:
        """Return the note of an attempt. An attempt that continues one which never ended continues its
        MLflow run.
        """
        ends = self._kept().ends
        found = next((note for note in ends if note.attempt == attempt), None)
        left = next((note for note in reversed(ends) if note.live and note.attempt < attempt), None)
        if found is None and left is not None:
            found = replace(left, attempt=attempt)
        return found or Note(attempt, secrets.token_hex(16))

    def keep(self, note: Note) -> None:
        self.project.ignore_state()
        self._place.parent.mkdir(parents=True, exist_ok=True)
        others = tuple(
            each for each in self._kept().ends if each.attempt != note.attempt and each.id != note.id
        )
        atomic_write(self._place, json.dumps(asdict(_Kept((*others, note)[-1_000:]))).encode())

    @property
    def _place(self) -> Path:
        return self.project.state / _FOLDER / f"{self.run_id}.json"

    def _kept(self) -> _Kept:
        try:
            return decoded(_Kept, regular_bytes(self._place, SHORT))
        except (OSError, Malformed):
            return _Kept()


def curve_key(axis: str, name: str) -> str:
    """Return the key of a curve in `Note.sent`: steps of two axes cannot be compared."""
    return f"{axis}:{name}"
