"""Notice problems of an active run: no progress, a loss that is not finite, a disk that fills up.

Each problem is noticed once, reported in the run's output, and kept for its record. The job is ended only if
its spec asks for it: after `stall` seconds without progress, or for a loss that is not finite with `on_nan:
stop`.

Progress is output or a training step. For a job that has shown no step yet, it is also the use of 5% of a
core, or of a MiB of disk traffic: a job may load its data, or train unobserved, in silence.
"""

# Close to the kernel: descriptors and races need os calls, not pathlib.
# ruff: noqa: PTH118

from __future__ import annotations

import json
import os
import re
import time
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from ..rundir import RunDir, open_plain, write_json
from . import notices, streamed

EVERY = 1.0
BUSY = 0.05
MOVED = 1 << 20
_WINDOW = 10.0
_BLOCK = 1 << 20
_OVERLAP = 256
_LOW_SHARE = 0.05
_LOW_BYTES = 2 << 30
_GIB = 1 << 30
_NO_NUMBER = re.compile(
    rb"(?:^|[^\w.])((?:\w{1,40}_)?loss)['\"]?\s{0,4}[:=]\s{0,4}([-+]?(?:nan|inf(?:inity)?))(?![\w.])", re.I
)
"""A loss that is not a number, as Keras and most scripts print it: `loss: nan`, `val_loss=inf`, `"loss":
NaN`.
"""
_STEPS = ("steps", "first_step")

Stop = Tuple[str, str]


class Used(NamedTuple):
    """Seconds of CPU and bytes that the job has used so far."""

    cpu: float
    moved: int


class Health:
    """Watch one run. `stall`: seconds, 0 for never. `used` returns what the job has used so far."""

    def __init__(
        self,
        run: RunDir,
        cwd: str,
        stall: float,
        stops_for_nan: bool,
        used: Callable[[], Used],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run = run
        self._cwd = cwd
        self._stall = stall
        self._stops_for_nan = stops_for_nan
        self._used = used
        self._clock = clock
        self._log, self._trace = _Grown(run.log, _last_bytes), _Grown(run.trace, _last_line)
        self._steps: Optional[int] = None
        self._since = self._looked = clock()
        self._window = (self._since, used())
        self._low = False
        self.noticed: List[Dict[str, Any]] = []

    def look(self) -> Optional[Stop]:
        """Return (reason, sentence) if the job is to be ended now."""
        now = self._clock()
        if now - self._looked < EVERY:
            return None
        self._looked = now
        printed = self._log.more()
        stepped = self._read_trace()
        if printed or stepped or self._works(now):
            self._since = now
        stop = self._of_the_loss(printed)
        self._of_the_disk()
        return self._of_the_data() or stop or self._of_the_progress(now)

    def look_at_the_end(self) -> Optional[Stop]:
        """Notice the last output of the job. Returns a reason if streamed data did not arrive."""
        self._read_trace()
        self._of_the_loss(self._log.more())
        return self._of_the_data()

    def _of_the_data(self) -> Optional[Stop]:
        text = streamed.failure(self._run)
        return ("data_failed", text) if text else None

    # ------------------------------------------------------------ progress

    def _works(self, now: float) -> bool:
        """Whether a job that has shown no step used the machine in the last seconds."""
        begun, before = self._window
        if self._steps is not None or now - begun < _WINDOW:
            return False
        used = self._used()
        self._window = (now, used)
        return used.cpu - before.cpu >= BUSY * (now - begun) or used.moved - before.moved >= MOVED

    def _of_the_progress(self, now: float) -> Optional[Stop]:
        if not self._stall or now - self._since < self._stall:
            return None
        quiet = "no training step and no output" if self._steps is not None else "no output, and nothing done"
        text = f"It made no progress for {self._stall:.0f} s (stall): {quiet}."
        self._notice("stalled", text)
        return "stalled", text

    # ------------------------------------------------------------ the loss

    def _read_trace(self) -> bool:
        """Read the trace; returns whether there were new steps."""
        stepped = False
        for line in _lines(self._trace.more()):
            if line.get("event") in _STEPS:
                stepped = True
                total = line.get("total", line.get("n"))
                self._steps = total if isinstance(total, int) else self._steps or 0
            elif line.get("event") == "not_finite":
                self._lost_its_loss("loss", str(line.get("value"))[:40], line.get("step"))
        return stepped

    def _of_the_loss(self, printed: bytes) -> Optional[Stop]:
        found = _NO_NUMBER.search(printed)
        if found:
            name, value = (part.decode("ascii", "replace") for part in found.groups())
            self._lost_its_loss(name, value, self._steps)
        text = next((each["detail"] for each in self.noticed if each["what"] == "not_finite"), None)
        return ("not_finite", text) if text and self._stops_for_nan else None

    def _lost_its_loss(self, name: str, value: str, step: Any) -> None:
        if any(each["what"] == "not_finite" for each in self.noticed):
            return
        step = step if isinstance(step, int) and not isinstance(step, bool) and step >= 0 else None
        where = "" if step is None else f", seen at step {step}"
        self._notice("not_finite", f"Its {name} is no finite number ({value.lower()}){where}.", step)

    # ------------------------------------------------------------ the disk

    def _of_the_disk(self) -> None:
        for path in () if self._low else (self._cwd, self._run.root):
            try:
                about = os.statvfs(path)
            except OSError:
                continue
            free, all_ = about.f_bavail * about.f_frsize, about.f_blocks * about.f_frsize
            if free < min(_LOW_SHARE * all_, _LOW_BYTES):
                self._low = True
                text = f"The disk is nearly full: {free / _GIB:.1f} of {all_ / _GIB:.1f} GiB are free."
                self._notice("disk_low", text)
                return

    def _notice(self, what: str, text: str, step: Optional[int] = None) -> None:
        self.noticed.append({"what": what, "at": round(time.time(), 3), "step": step, "detail": text})
        notices.say(text, self._run.log)
        try:
            write_json(os.path.join(self._run.root, "noticed.json"), {"noticed": self.noticed})
        except OSError:  # a full disk: the end of the run reports it
            pass


class _Grown:
    """A file that others append to; returns what is new in it."""

    def __init__(self, path: str, kept: Callable[[bytes], bytes]) -> None:
        self._path = path
        self._kept = kept
        self._offset = 0
        self._tail = b""

    def more(self) -> bytes:
        """Return new bytes, preceded by what was kept of earlier ones; b"" if there are none. At most the
        last MiB.
        """
        try:
            with open(open_plain(self._path), "rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size <= self._offset:
                    self._offset = size
                    return b""
                if size - self._offset > _BLOCK:
                    self._offset, self._tail = size - _BLOCK, b""
                file.seek(self._offset)
                data = file.read(_BLOCK)
        except OSError:
            return b""
        self._offset += len(data)
        whole = self._tail + data
        self._tail = self._kept(whole)
        return whole


def _last_bytes(text: bytes) -> bytes:
    """For output: return the part that may be the beginning of a loss."""
    return text[-_OVERLAP:]


def _last_line(text: bytes) -> bytes:
    """For a trace: return the last line, which is incomplete."""
    return text[text.rfind(b"\n") + 1 :][:_BLOCK]


def _lines(data: bytes) -> Iterator[Dict[str, Any]]:
    """Return the records in a piece of a trace; an incomplete line is skipped."""
    for text in data.split(b"\n"):
        try:
            value = json.loads(text) if text[:1] == b"{" else None
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            yield value
