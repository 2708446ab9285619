"""The file with the result of a sizing, complete at every moment, written by one process only."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Dict, Optional

from .course import Course

FORMAT = 1


class Result:
    """`facts` and the measurements of a course. `end`: no step (none was seen yet), began, done, no batch or
    failed.
    """

    def __init__(self, out: str) -> None:
        self.facts: Dict[str, Any] = {"v": FORMAT, "end": "no step", "modules": []}
        self._out = out
        self._course: Optional[Course] = None

    def of(self, course: Course) -> None:
        """Attach the course whose sizes and notes belong to it."""
        self._course = course

    def claim(self) -> None:
        """Claim the measurement: only the first of several training processes is measured. Raises
        FileExistsError in the others.
        """
        with open(f"{self._out}.claim", "x", encoding="ascii") as file:
            file.write(str(os.getpid()))

    def claimed_elsewhere(self) -> bool:
        """Whether another process is being measured."""
        try:
            claimed = Path(f"{self._out}.claim").read_text(encoding="ascii")
        except OSError:
            return False
        return claimed != str(os.getpid())

    def save(self) -> None:
        """Write the file, unless it belongs to another process."""
        if self.claimed_elsewhere():
            return
        if self._course is not None:
            self.facts["sizes"] = self._course.sizes
            self.facts["notes"] = self._course.notes
        part = Path(f"{self._out}.{os.getpid()}.part")
        part.write_text(json.dumps(self.facts), encoding="utf-8")
        part.replace(self._out)
