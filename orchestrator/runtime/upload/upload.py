"""Upload a run's checkpoints, log and results to its store, with a form that its client signed.

uploads BASE RUN    prints {"state", "refused"}: "none" (no form was given), "going" (more may come), "done"
                    (all that the run left is there), or "over" (this process ended before it was);
                    `refused`: why the store did not take what was sent last, or ""

The process outlives the client and the run. The form is only in its memory, so that nobody who reads the
machine's disk gets it. It is valid for one attempt, and can neither read nor delete objects.
"""

# Close to the kernel: descriptors, modes and races need os calls, not pathlib.
# ruff: noqa: PTH110, PTH118, PTH119, PTH202

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import time
from typing import Any, Dict, List, NamedTuple, Optional

from ..http import Body, Client, File, HttpError
from ..keep.keep import await_last
from ..keep.snapshot import FOLDER, hold, manifest, numbers
from ..processes import set_oom_score
from ..rundir import RunDir, held, is_plain, open_run, read_json, state, write_json
from ..transfer import outputs
from . import names

_LOOK_S = 1.0
_LOG_S = 30.0
"""Seconds between two uploads of the complete log."""
_AGAIN_S = 30.0
"""Seconds to wait after a refusal."""
_TRIES = 5
"""Attempts to send what the run left."""
_MOST_LOG = 8 << 20
"""Bytes: a longer log is uploaded only at the end."""
_FIRST_KILLED = "500"
_KINDS = ("file", "dir", "link")
_HOLDER = "upload"


class Grant(NamedTuple):
    """A signed form that allows uploads of objects whose keys begin with `prefix`."""

    url: str
    fields: Dict[str, str]
    prefix: str


def main(argv: List[str]) -> int:
    base, run_id = argv
    run = open_run(base, run_id)
    said = read_json(_told(run)) or {"done": False, "refused": ""}
    stands = "none"
    if os.path.exists(_claim(run)):
        stands = "done" if said["done"] else "going" if _is_claimed(run) else "over"
    json.dump({"state": stands, "refused": said["refused"]}, sys.stdout)
    return 0


def claim(run: RunDir) -> int:
    """Return a descriptor: while it or a duplicate of it is open, more uploads may follow."""
    descriptor = os.open(_claim(run), os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def upload(run: RunDir, grant: Grant) -> None:
    """Send each new copy of the checkpoints, and the log, during the run; then what it left."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # at a shutdown, the last copy is the most important one
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(5)
    set_oom_score(_FIRST_KILLED)
    with Client() as client:
        uploader = Uploader(run, grant, client)
        while not os.path.exists(run.exit) and held(run):
            uploader.look()
            time.sleep(_LOOK_S)
        if os.path.exists(run.exit):
            await_last(run)
            uploader.look(now=True)
            for _ in range(_TRIES):
                if uploader.finish():
                    return
                time.sleep(_AGAIN_S)


class Uploader:
    """The objects of one run in its store, as far as this process uploaded them."""

    def __init__(self, run: RunDir, grant: Grant, client: Client) -> None:
        self._run = run
        self._grant = grant
        self._client = client
        self._sent = 0
        self._slots: Dict[str, List[str]] = {}
        self._log = (0, float("-inf"))
        self._told = ("", False)
        self._not_before = float("-inf")

    def look(self, now: bool = False) -> None:
        """Send what is new. What cannot be sent is retried later. `now`: the run has ended."""
        if not now and time.monotonic() < self._not_before:
            return
        try:
            self._checkpoint()
            self._short_log(now)
            self._tell("")
        except (HttpError, OSError) as error:
            self._not_before = time.monotonic() + _AGAIN_S
            self._tell(str(error))

    def finish(self) -> bool:
        """Send what the run left: its outputs, then their list, and last how it ended. Returns whether
        everything is there, or can never be.
        """
        try:
            found = outputs.outputs(self._run)
            entries = [each for each in found if each["kind"] in _KINDS]
            for entry in entries:
                if entry["kind"] == "file":
                    self._file(names.output(entry["path"]), os.path.join(self._run.work, entry["path"]))
            left = {**outputs.left(self._run), "entries": entries}
            self._put(names.OUTPUTS, json.dumps(left, sort_keys=True).encode())
            for path in (self._run.log, self._run.trace):
                if os.path.exists(path):
                    self._file(os.path.basename(path), path)
            self._put(names.STATE, json.dumps(state(self._run), sort_keys=True).encode())
            self._tell("", done=True)
            if len(entries) == len(found):
                write_json(self._run.stored, {"at": time.time()})
        except (HttpError, OSError) as error:
            self._tell(str(error))
            return isinstance(error, HttpError) and error.kind != "passing"
        return True

    def _checkpoint(self) -> None:
        newest = max(numbers(self._run), default=0)
        if newest <= self._sent:
            return
        hold(self._run, newest, _HOLDER)
        listed = manifest(self._run, newest)
        if listed is None:
            return
        name = names.SLOTS[newest % len(names.SLOTS)]
        before = self._slots.pop(name, [])
        self._put(f"{names.slot(name)}/{names.MANIFEST}", b"{}")  # from here on the slot has no complete copy
        folder = os.path.join(self._run.path(FOLDER), f"{newest:06d}", "files")
        for number, file in enumerate(listed["files"]):
            if number >= len(before) or before[number] != file["digest"]:
                self._file(names.of_slot(name, number), os.path.join(folder, file["path"]))
        self._put(f"{names.slot(name)}/{names.MANIFEST}", json.dumps(listed, sort_keys=True).encode())
        self._slots[name] = [file["digest"] for file in listed["files"]]
        self._sent = newest

    def _short_log(self, now: bool) -> None:
        size, at = self._log
        found = os.path.getsize(self._run.log) if os.path.exists(self._run.log) else 0
        if found == size or found > _MOST_LOG or not (now or time.monotonic() - at >= _LOG_S):
            return
        self._put(os.path.basename(self._run.log), File(self._run.log, found))
        self._log = (found, time.monotonic())

    def _file(self, name: str, path: str) -> None:
        about = os.lstat(path)
        if not is_plain(about):
            raise OSError(f"{os.path.basename(path)} is not a regular file any more")
        if about.st_size > names.LARGEST:
            raise OSError(f"{os.path.basename(path)} has more than {names.LARGEST:,} bytes")
        self._put(name, File(path, about.st_size))

    def _put(self, name: str, body: Body) -> None:
        form = {**self._grant.fields, "key": self._grant.prefix + name}
        self._client.post_form(self._grant.url, form, body)

    def _tell(self, refused: str, done: bool = False) -> None:
        if (refused, done) == self._told:
            return
        try:
            write_json(_told(self._run), {"refused": refused[:500], "done": done})
            self._told = (refused, done)
        except OSError:  # a full disk: it is written at the next look
            pass


def grant_of(spec: Dict[str, Any]) -> Optional[Grant]:
    """Return the form that a job was given, if any."""
    given = spec["grant"]
    return Grant(given["url"], dict(given["fields"]), given["prefix"]) if given else None


def _is_claimed(run: RunDir) -> bool:
    descriptor = os.open(_claim(run), os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _claim(run: RunDir) -> str:
    return run.path("uploads.lock")


def _told(run: RunDir) -> str:
    return run.path("uploads.json")
