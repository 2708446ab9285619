"""Watches one process of a resume check: its checkpoints, its epochs, and where it is to be killed.

ORCH_RESUME is a JSON object:
    root         the working folder of the copy
    log          a file; one JSON object a line: what was seen
    folders      what --checkpoints names, below root; empty: files with a typical name of a checkpoint
    kill         {"checkpoint": n}: kill this process when the step after the n-th checkpoint is complete;
                 {"cycle": name, "write": n}: when it is about to write that file for the n-th time
    states       a file for the generators' states, written when the last checkpoint before the kill begins
    generators   python, numpy or made: put back when the checkpoint is first read
    callbacks    [{name: value}, …]: attributes that Keras callbacks are given before the first epoch
"""

# ruff: noqa: PTH118

from __future__ import annotations

import functools
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

from ..observe.imports import ImportHook
from ..observe.recorder import Recorder
from . import generators
from .names import cycle_of, files_of, is_checkpoint

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_KEPT = ("wait", "best", "cooldown_counter", "epochs_since_last_save")
"""Counters that Keras callbacks keep from one epoch to the next."""

_ABSENT = object()


class Watch:
    """Watch one process. A hook that fails leaves a fact out; it never ends the job."""

    def __init__(self, wish: Mapping[str, Any]) -> None:
        self._root = str(wish["root"])
        self._log = os.open(str(wish["log"]), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._folders: List[str] = list(wish.get("folders") or [])
        self._kill: Dict[str, Any] = dict(wish.get("kill") or {})
        self._states = str(wish.get("states") or "")
        self._generators = str(wish.get("generators") or "")
        self._callbacks: Optional[List[Dict[str, Any]]] = wish.get("callbacks")
        self._pid = os.getpid()
        self._known: Optional[Dict[str, Any]] = None
        self._steps = 0
        self._count = 0
        self._writes: Dict[str, int] = {}
        self._inside = threading.local()

    # ------------------------------------------------------------ steps

    def on_step(self) -> None:
        """Note a complete step. Files that changed since the last one were written completely between the
        two.
        """
        if os.getpid() != self._pid:
            return
        now = self._scan()
        before, self._known = self._known, now
        self._steps += 1
        changed = sorted(
            name for name, state in now.items() if before is not None and before.get(name) != state
        )
        if not changed:
            return
        self._count += 1
        self._say(
            {"event": "checkpoint", "number": self._count, "step": self._steps - 1, "files": changed[:50]}
        )
        if self._kill.get("checkpoint") == self._count:
            self._end()

    def _scan(self) -> Dict[str, Any]:
        self._inside.busy = True
        try:
            return files_of(self._root, self._folders)
        finally:
            self._inside.busy = False

    # ------------------------------------------------------------ files that Python opens

    def audit(self, event: str, arguments: Any) -> None:
        """Handle an audit event: note the checkpoints that Python itself reads and writes."""
        if event not in ("open", "os.rename") or getattr(self._inside, "busy", False):
            return
        if os.getpid() != self._pid:
            return
        self._inside.busy = True
        try:
            self._opened(event, arguments)
        except Exception:
            pass
        finally:
            self._inside.busy = False

    def _opened(self, event: str, arguments: Any) -> None:
        path = arguments[1] if event == "os.rename" else arguments[0]
        if isinstance(path, int) or path is None:
            return
        folder, name = os.path.split(os.fsdecode(path))
        root = os.path.realpath(self._root)
        full = os.path.join(os.path.realpath(folder or "."), name)
        if not full.startswith(root + os.sep):
            return
        short = os.path.relpath(full, root)
        if not is_checkpoint(short, self._folders):
            return
        if event == "open" and not _writes(arguments[1], arguments[2]):
            self._read()
        else:
            self._written(short)

    def _written(self, short: str) -> None:
        cycle = cycle_of(short)
        count = self._writes[cycle] = self._writes.get(cycle, 0) + 1
        if cycle == self._kill.get("cycle"):
            if count == self._kill["write"]:
                self._end()
            if count == self._kill["write"] - 1 and self._states:
                generators.keep(Path(self._states))
        self._say({"event": "write", "cycle": cycle, "file": short, "count": count, "step": self._steps})

    def _read(self) -> None:
        which, self._generators = self._generators, ""
        if which:
            for each in which.split(","):
                generators.put_back(Path(self._states), each)
            self._say({"event": "put back", "what": which})

    # ------------------------------------------------------------ Keras

    def on_tensorflow(self, _tf: Any) -> None:
        """Do nothing: TensorFlow itself is not watched."""

    def on_keras(self, keras: Any) -> None:
        """Note the state of callbacks when an epoch begins."""
        kind = keras.callbacks.CallbackList
        original = kind.on_epoch_begin

        @functools.wraps(original)
        def on_epoch_begin(listed: Any, epoch: Any, logs: Any = None) -> Any:
            result = original(listed, epoch, logs)
            try:
                self._epoch(listed, int(epoch))
            except Exception:
                pass
            return result

        kind.on_epoch_begin = on_epoch_begin

    def _epoch(self, listed: Any, epoch: int) -> None:
        given, self._callbacks = self._callbacks, None
        for callback, values in zip(listed.callbacks, given or []):  # noqa: B905
            for name, value in values.items():
                if name in _KEPT and hasattr(callback, name):
                    setattr(callback, name, None if value == "None" else float(value))
        held = [_counts(callback) for callback in listed.callbacks]
        kinds = [type(callback).__name__ for callback in listed.callbacks]
        self._say({"event": "epoch", "epoch": epoch, "step": self._steps, "kinds": kinds, "callbacks": held})

    # ------------------------------------------------------------ inside

    def _end(self) -> None:
        self._say({"event": "killed", "step": self._steps})
        os.kill(os.getpid(), signal.SIGKILL)

    def _say(self, line: Dict[str, Any]) -> None:
        os.write(self._log, (json.dumps(line) + "\n").encode())


def _counts(callback: Any) -> Dict[str, str]:
    """Return the counters of a callback as text, because JSON has no infinity."""
    found: Dict[str, str] = {}
    for name in _KEPT:
        value: Any = getattr(callback, name, _ABSENT)
        if value is None:
            found[name] = "None"
        if isinstance(value, (bool, int, float)) or hasattr(value, "item"):
            found[name] = repr(float(value))
    return found


def _writes(mode: Any, flags: Any) -> bool:
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    return isinstance(flags, int) and bool(flags & _WRITING)


def install(environ: Mapping[str, str]) -> Optional[Watch]:
    """Watch this process as ORCH_RESUME requests. It listens for Keras too."""
    wish = json.loads(environ["ORCH_RESUME"])
    watch = Watch(wish)
    Recorder.after_commit.append(watch.on_step)
    generators.watch_python()
    generators.watch()
    ImportHook(("numpy",), lambda _module: generators.watch()).install()
    sys.addaudithook(watch.audit)
    return watch
