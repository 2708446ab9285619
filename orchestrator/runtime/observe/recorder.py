"""Collect what one process shows of its first steps, and write each step when it is complete."""

from __future__ import annotations

import atexit
import os
import threading
from dataclasses import dataclass
from typing import Any, Callable, ClassVar, Dict, List, Optional, Sequence, Tuple

from ..leaving import exit_early
from .digest import records
from .light import LightSteps
from .settings import Settings
from .store import Store

STAGES = ("batch", "initial", "activation", "loss", "gradient", "update", "metrics")
"""The stages, in the order in which two runs are compared."""

MAX_EVENTS = 20000
"""Maximum number of tensors of one step; with more, the script's steps were not recognised correctly."""


@dataclass(frozen=True)
class Label:
    """Describes an array: its stage, its name (a path), and its position in the order of the program.

    `light`: whether light steps fingerprint it, too.
    """

    stage: str
    name: str
    order: int
    light: bool = True


class Recorder:
    """One process's recording. Safe to call from any thread; a forked child records nothing.

    Methods never raise: an error is noted and ends the recording, and the job continues.
    """

    after_commit: ClassVar[List[Callable[[], None]]] = []
    """Functions to call after each step was written."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.closed = False
        self.environment: Optional[Callable[[], Dict[str, Any]]] = None
        self.missing_batch: Optional[Callable[[], List[Tuple[Label, Any]]]] = None
        self.imposed: Callable[[], Optional[Dict[str, Any]]] = lambda: None
        self.release: Callable[[], None] = lambda: None
        self.before_stop: Callable[[], None] = lambda: None
        self.steps = 0
        self._light = LightSteps()
        self._held = False
        self._complete = False
        self._store = Store(settings.directory)
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._claimed = False
        self._tensors: List[Tuple[Label, Dict[str, Any]]] = []
        self._records: Dict[str, Dict[str, Any]] = {}
        self._initial: set[int] = set()
        self._unread: set[str] = set()
        self._notes: List[Dict[str, str]] = []

    # ------------------------------------------------------------ from the hooks

    def wants(self) -> bool:
        """Whether tensors are still requested, in this process."""
        return not self.closed and not self._complete and os.getpid() == self._pid

    def takes(self, label: Label) -> bool:
        """Whether this tensor of the step in progress is requested: light steps use only some."""
        return self.steps < self.settings.steps or self._light.takes(label)

    def observe(self, labels: Sequence[Label], arrays: Sequence[Any]) -> None:
        """Add arrays to the step in progress. They are read before this returns."""
        with self._lock:
            if not self.wants() or not self._claim():
                return
            try:
                if self.steps < self.settings.steps:
                    self._take(labels, arrays)
                else:
                    self._light.take(labels, arrays)
            except Exception as error:
                self.fail("recording a tensor", error)

    def commit(self) -> None:
        """Write the step in progress, which is complete. After the last requested step, finish."""
        with self._lock:
            if not self.wants() or not self._claim():
                return
            try:
                self._add_missing_batch()
                if self.steps < self.settings.steps:
                    self._commit_full()
                else:
                    if not self._light.done:
                        atexit.register(self._write_light)
                    self._light.commit(self.steps + self._light.done + 1)
                self._complete = self.steps + self._light.done >= self.settings.steps + self.settings.light
                self._store.append(self._light.due(now=self._complete))
                for tell in self.after_commit:
                    tell()
            except Exception as error:
                self.fail("writing a step", error)
                return
            if self._complete and not self._held:
                self._finish()

    def hold(self) -> None:
        """Begin a call that will report metrics of its last step: do not finish before `let_go`."""
        self._held = True

    def let_go(self, metrics: Sequence[Tuple[str, Any]] = ()) -> None:
        """End that call; `metrics` (name, array) belong to the last step that was recorded in full."""
        with self._lock:
            self._held = False
            if self.closed or os.getpid() != self._pid:
                return
            try:
                if metrics and not self._light.done and self.steps:
                    kept = [
                        {"stage": "metrics", "name": name, **self._store.keep(array)}
                        for name, array in metrics
                    ]
                    self._store.append([{"event": "metrics", "step": self.steps, "tensors": kept}])
            except Exception as error:
                self.fail("writing metrics", error)
                return
            if self._complete:
                self._finish()

    def announce(self) -> None:
        """Write the status, which shows that hooks are installed even if no step follows."""
        with self._lock:
            self._status()

    def saw(self, stage: str, name: str) -> bool:
        """Whether the step in progress has a tensor of that stage whose name begins with `name`."""
        labels = [label for label, _ in self._tensors] + self._light.labels()
        return any(label.stage == stage and label.name.startswith(name) for label in labels)

    def unread(self, name: str) -> None:
        """Note that tensor `name` exists only inside a fused operation: reading it would change the graph."""
        self._unread.add(name)

    def note(self, what: str, why: str) -> None:
        """Note once that something is not compared, and why."""
        with self._lock:
            entry = {"what": what, "why": why}
            if entry not in self._notes and os.getpid() == self._pid:
                self._notes.append(entry)
                self._status()

    def fail(self, what: str, error: BaseException) -> None:
        """Record an error of orch itself and end the observation. The job continues."""
        self._close()
        self.note("everything from here on", f"{what} failed: {type(error).__name__}: {error}")

    # ------------------------------------------------------------ inside

    def _claim(self) -> bool:
        if not self._claimed:
            self._claimed = self._store.claim()
            if not self._claimed:
                self._close()
                self._store.facts(
                    f"status-{os.getpid()}",
                    {"why": "another process of this run trained first; only that one is recorded"},
                )
        return self._claimed

    def _take(self, labels: Sequence[Label], arrays: Sequence[Any]) -> None:
        if len(self._tensors) + len(labels) > MAX_EVENTS:
            raise RuntimeError(f"more than {MAX_EVENTS} tensors in one step")
        batch: Dict[str, List[Any]] = {}
        for label, array in zip(labels, arrays):  # noqa: B905
            if label.stage == "initial":
                if label.order in self._initial:
                    continue
                self._initial.add(label.order)
            if label.stage == "batch":
                batch.setdefault(label.name.split("/")[0], []).append(array)
            replayed = label.stage in ("batch", "initial")
            self._tensors.append((label, self._store.keep(array, replayed=replayed)))
        for name, members in batch.items():
            found = records(members)
            if found:
                self._records.setdefault(name, found)

    def _add_missing_batch(self) -> None:
        if self.missing_batch and not (self.saw("batch", "data") or self.saw("batch", "share")):
            entries = self.missing_batch()
            labels, arrays = [label for label, _ in entries], [array for _, array in entries]
            if self.steps < self.settings.steps:
                self._take(labels, arrays)
            else:
                self._light.take(labels, arrays)

    def _line(self) -> Dict[str, Any]:
        ordered = sorted(self._tensors, key=lambda item: (STAGES.index(item[0].stage), item[0].order))
        seen: Dict[Tuple[str, str], int] = {}
        tensors = []
        for label, facts in ordered:
            count = seen[label.stage, label.name] = seen.get((label.stage, label.name), 0) + 1
            name = label.name if count == 1 else f"{label.name}#{count}"
            tensors.append({"stage": label.stage, "name": name, **facts})
        line = {
            "event": "step",
            "step": self.steps,
            "records": self._records,
            "unread": sorted(self._unread),
            "tensors": tensors,
        }
        self._tensors, self._records = [], {}
        return line

    def _close(self) -> None:
        """Accept nothing more, and release what the hooks hold."""
        self.closed = True
        self.missing_batch = None
        self.release()

    def _commit_full(self) -> None:
        self.steps += 1
        self._store.append([self._line()])
        if self.environment and self.steps in (1, self.settings.steps):
            self._store.facts("environment", self.environment())
        self._status()

    def _write_light(self) -> None:
        """At the program's end, write the light steps that are still waiting."""
        with self._lock:
            if self.wants():
                try:
                    self._store.append(self._light.due(now=True))
                    self._status()
                except Exception as error:
                    self.fail("writing light steps", error)

    def _finish(self) -> None:
        try:
            self._close()
            self._status()
        except Exception as error:
            self.fail("ending the recording", error)
        if self.settings.stop:
            self._stop()

    def _status(self) -> None:
        enough = self._complete
        self._store.facts(
            "status" if self._claimed or not (self.settings.directory / "claim").exists() else "status-late",
            {
                **({"imposed": self.imposed()} if self.imposed() else {}),
                "state": "complete" if enough else "recording" if self._claimed else "waiting",
                "requested": self.settings.steps,
                "steps": self.steps,
                "light_requested": self.settings.light,
                "light": self._light.done,
                "not_compared": self._notes,
            },
        )

    def _stop(self) -> None:
        """End the process at once, as a success: the rest of the script is not wanted."""
        self._store.stopped(self.steps)
        self.before_stop()
        exit_early()
