"""Show a tree of objects, with all names and sizes, while they are still being fetched: verb `stream`.

The protocol, in frames as for `fetch`:

    client  {"objects": [[path, size, version, checksum], …], "single"}
    server  {"links": [index, …]}          request links, at most 10,000 at a time, until all have one
    client  {"links": [[url, {header: value}], …]}
    server  {"mount", "state"}             where the tree is shown, and the file that has its state
    or      {"mount": "", "state": ""}     nothing to show: `fetch` completes the tree at once
    or      {"error", "text", …}           as for `fetch`; "no_mount" if this machine cannot mount it

Opening a file at the mount waits until its object is in the tree, verified; objects that are waited for come
first. The process that fetches and serves the tree goes on after the connection has ended. If an object
cannot be fetched as listed, all waiting processes get an error, and the state names the object. A second call
for the same objects uses the process of the first.
"""

# Close to the kernel: descriptors, modes and races need os calls, not pathlib.
# ruff: noqa: PTH103, PTH108, PTH118

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import queue
import signal
import sys
import threading
import time
import traceback
from typing import Any, Dict, Iterator, List, NamedTuple, Optional

from ..processes import set_oom_score, signal_exactly, start_of
from ..rundir import read_json, write_json
from ..transfer import apply, tree
from ..transfer.apply import Refused, Say
from ..transfer.confined import Confined
from ..transfer.frames import Broken, Read, Write, receive, send
from . import fuse
from .mounting import CannotMount, mount, mounted, unmount
from .objects import Client, Fetch, rows_of
from .staging import Wanted

GOING, DONE, FAILED = "going", "done", "failed"
_AHEAD = 64
_BATCH = 10_000
_THREADS = 4
_PATIENCE = 60.0
_LAST_KILLED = "-500"
_NOTHING = {"mount": "", "state": ""}


class Shown(NamedTuple):
    """Paths of the stream of the tree at `root`."""

    root: str

    @property
    def folder(self) -> str:
        return f"{self.root}.stream"

    @property
    def mount(self) -> str:
        return os.path.join(self.folder, "tree")

    @property
    def state(self) -> str:
        return os.path.join(self.folder, "state.json")

    @property
    def lock(self) -> str:
        return os.path.join(self.folder, "lock")


def main(argv: List[str]) -> int:
    """Run with [root]. Exit status 1 if the tree cannot be shown, 2 for a wrong command line."""
    if len(argv) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    return serve(argv[0], tree.incoming(), tree.outgoing())


def serve(root: str, read: Read, write: Write) -> int:
    """Run the protocol. Returns the exit status."""

    def say(message: Any) -> None:
        send(write, message)
        write(b"")

    try:
        ask = receive(read)
        wanted = [Wanted(*row) for row in ask["objects"]]
        apply.refuse_hostile(rows_of(wanted))
        say(_shown(Shown(root), wanted, ask["single"], _Asked(read, say)))
    except Refused as refusal:
        say(refusal.facts)
    except Broken as error:
        print(f"The stream ended early: {error}.", file=sys.stderr)
    except OSError as error:
        say({"error": "failed", "text": str(error)})
    else:
        return 0
    return 1


def _shown(shown: Shown, wanted: List[Wanted], single: str, asked: _Asked) -> Dict[str, str]:
    """Return the last message of the protocol, after starting the stream if it is needed."""
    os.makedirs(shown.folder, exist_ok=True)
    name = _digest(wanted, single)
    told = {"mount": os.path.join(shown.mount, single) if single else shown.mount, "state": shown.state}
    lock = _locked(shown, name)
    if lock is None:
        return told if (read_json(shown.state) or {}).get("state") == GOING else _NOTHING
    try:
        place = apply.make_place(shown.root, single)
        with apply.alone(place):
            missing = Fetch(place, wanted, asked).missing()
        if not missing:
            return _NOTHING
        links = asked.all_links(missing)
        _forget(shown)
        os.makedirs(shown.mount, exist_ok=True)
        _detach(_Stream(shown, place, wanted, single, name, links), lock)
    finally:
        os.close(lock)
    return told


# ---------------------------------------------------------------- one process for each tree


def _locked(shown: Shown, name: str) -> Optional[int]:
    """Return the lock of the tree's stream; None if a stream of the same objects is running or done.

    A stream that failed, or shows other objects, is ended. Raises Refused if this does not succeed in time.
    """
    give_up = time.monotonic() + _PATIENCE
    lock = os.open(shown.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    while time.monotonic() < give_up:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            state = read_json(shown.state) or {}
            if state.get("wanted") == name and state.get("state") in (GOING, DONE):
                os.close(lock)
                return None
            if state.get("pid"):
                signal_exactly(state["pid"], state.get("start"), signal.SIGTERM)
            time.sleep(0.05)
        else:
            return lock
    os.close(lock)
    raise Refused("busy", f"Another stream of {shown.root} is being prepared.")


def _forget(shown: Shown) -> None:
    """Remove the mount and state of a stream whose process is dead. The caller holds the lock."""
    if os.path.realpath(shown.mount) in mounted():
        unmount(shown.mount)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(shown.state)


def _detach(stream: _Stream, lock: int) -> None:
    """Fork the process that fetches and serves the tree; wait until it is mounted. Raises Refused if that
    fails."""
    reading, writing = os.pipe()
    first = os.fork()
    if first == 0:
        _in_the_background(stream, lock, writing)
    os.close(writing)
    os.waitpid(first, 0)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read().decode(errors="replace")
    if said != "ok":
        raise Refused("no_mount", said or "the process that was to show the objects ended at once")


def _in_the_background(stream: _Stream, lock: int, ready: int) -> None:
    """Run the stream in the child: a new session without terminal or descriptors of the connection. Never
    returns."""
    try:
        os.setsid()
        if os.fork() > 0:
            os._exit(0)
        os.chdir("/")
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        diary = os.open(f"{stream.shown.folder}/log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        for descriptor in (1, 2):
            os.dup2(diary, descriptor)
        os.set_inheritable(lock, False)
        set_oom_score(_LAST_KILLED)
        stream.run(ready)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


class _Stream:
    """Fetches and shows the objects of one tree."""

    def __init__(
        self, shown: Shown, place: str, wanted: List[Wanted], single: str, name: str, links: Dict[int, Any]
    ) -> None:
        self.shown = shown
        self._place = place
        self._wanted = wanted
        self._single = single
        self._name = name
        self._client = _Links(links, self._came)
        self._inside = Confined(place)
        self._lock = threading.Lock()
        self._files: Optional[fuse.FileSystem] = None

    def run(self, ready: int) -> None:
        """Mount the tree and write "ok" to `ready`, or the reason why not; then fetch, and serve until it is
        unmounted."""
        try:
            device = mount(self.shown.mount)
        except CannotMount as error:
            os.write(ready, str(error).encode())
            return
        signal.signal(signal.SIGTERM, self._end)
        rows = rows_of(self._wanted)
        numbers = {each.path: number for number, each in enumerate(self._wanted)}
        self._files = fuse.FileSystem(device, rows, numbers, self._client.wanted, self._content)
        serving = [threading.Thread(target=self._files.serve) for _ in range(_THREADS)]
        for thread in serving:
            thread.start()
        self._say(GOING)
        os.write(ready, b"ok")
        os.close(ready)
        self._fetch()
        for thread in serving:
            thread.join()

    def _fetch(self) -> None:
        assert self._files is not None
        try:
            with apply.alone(self._place):
                Fetch(self._place, self._wanted, self._client, _AHEAD).run(self._single, self.shown.root)
        except Refused as refusal:
            self._fail(refusal.facts)
        except OSError as error:
            self._fail({"error": "failed", "text": error.strerror or str(error)})
        except BaseException:
            self._fail({"error": "failed", "text": traceback.format_exc()[-300:]})
        else:
            self._say(DONE)

    def _fail(self, facts: Dict[str, Any]) -> None:
        assert self._files is not None
        try:
            self._say(FAILED, kind=facts["error"], text=facts["text"], path=facts.get("path", ""))
        finally:  # waiting processes fail only after the state has the reason
            self._files.fail()

    def _came(self, number: int) -> None:
        assert self._files is not None
        self._files.came(number)

    def _content(self, number: int) -> int:
        with self._lock:
            return self._inside.open_file(self._wanted[number].path)

    def _say(self, state: str, **facts: str) -> None:
        own = {"pid": os.getpid(), "start": start_of(os.getpid())}
        write_json(self.shown.state, {"state": state, "wanted": self._name, **own, **facts})

    def _end(self, *_: object) -> None:
        unmount(self.shown.mount)
        os._exit(0)


# ---------------------------------------------------------------- links


class _Asked(Client):
    """The client of the protocol, while it is connected."""

    def __init__(self, read: Read, say: Say) -> None:
        self._read = read
        self._say = say

    def links(self, numbers: List[int]) -> List[Any]:
        self._say({"links": numbers})
        found = receive(self._read)["links"]
        if len(found) != len(numbers):
            raise Broken("the number of links is not that of the objects")
        return list(found)

    def all_links(self, numbers: List[int]) -> Dict[int, Any]:
        """Return a link for each of these objects."""
        found: Dict[int, Any] = {}
        for batch in _batches(numbers):
            found.update(zip(batch, self.links(batch)))  # noqa: B905  (`strict` came after 3.9)
        return found


class _Links(Client):
    """Links that were obtained before, and a queue of objects that are being waited for."""

    def __init__(self, links: Dict[int, Any], came: Any) -> None:
        self._links = links
        self._waited: "queue.SimpleQueue[int]" = queue.SimpleQueue()
        self.came = came  # type: ignore[method-assign]
        self.wanted = self._waited.put

    def links(self, numbers: List[int]) -> List[Any]:
        return [self._links[number] for number in numbers]

    def urgent(self) -> List[int]:
        return list(self._drained())

    def _drained(self) -> Iterator[int]:
        with contextlib.suppress(queue.Empty):
            while True:
                yield self._waited.get_nowait()


def _batches(numbers: List[int]) -> Iterator[List[int]]:
    return (numbers[at : at + _BATCH] for at in range(0, len(numbers), _BATCH))


def _digest(wanted: List[Wanted], single: str) -> str:
    return hashlib.sha256(json.dumps([wanted, single]).encode()).hexdigest()
