"""Start the process that reads the files, collect its answers, and continue after a file that ended it."""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from ..isolation import LAYERS, View
from .answers import sound
from .explain import Cause, Refusal
from .files import shards

_MAX_ANSWER = 96 << 20
"""Maximum bytes of one answer, mostly the values of arrays in base64."""
_SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store", "/etc/ld.so.cache",
           "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime", "/proc/self",
           "/proc/cpuinfo", "/proc/meminfo", "/sys/devices/system/cpu",
           "/sys/devices/system/node")  # fmt: skip
"""System paths that interpreters and libraries read. They contain no user's files."""
_KEPT = ("LD_LIBRARY_PATH", "KERAS_BACKEND", "TF_USE_LEGACY_KERAS", "LANG", "LC_ALL")
"""Variables that the child keeps: how its libraries are found, and which Keras loads."""
_MOST_SCRATCH = 1 << 30
_LONGEST_WAIT = 3600.0


@dataclass(frozen=True)
class Limits:
    """`seconds` for all files together, of which one file may use half. `memory` in bytes; 0: half of the
    free memory, at least 2 GiB."""

    seconds: float = 540.0
    memory: int = 0

    @property
    def bytes(self) -> int:
        return self.memory or max(2 << 30, _free_memory() // 2)


@dataclass(frozen=True)
class Request:
    """Absolute `paths`; `modules` that may be imported, from `folder` if they exist there."""

    paths: Sequence[str]
    modules: Sequence[str] = ()
    folder: Optional[Path] = None
    limits: Limits = field(default_factory=Limits)
    layers: Tuple[str, ...] = LAYERS


def answers(request: Request, ahead: Optional[Reader] = None) -> List[Dict[str, Any]]:
    """Return one answer for each path, in order. A file never raises an error: its answer has the reason.

    `ahead` is a process that waits for files, isolated and with its framework imported; it reads the first
    ones.
    """
    deadline = time.monotonic() + request.limits.seconds
    results: List[Dict[str, Any]] = []
    while len(results) < len(request.paths):
        left = request.paths[len(results) :]
        cause, ending = Cause.TIME, f"all {request.limits.seconds:g} s were used"
        if time.monotonic() < deadline:
            reader, ahead = ahead or Reader(request, left), None
            found, cause, ending = _by_one_process(reader, request, left, deadline)
            results += found
        if len(results) < len(request.paths):
            results.append(_not_answered(request.paths[len(results)], cause, ending))
    return results


def _not_answered(path: str, cause: Cause, ending: str) -> Dict[str, Any]:
    refusal = Refusal(ending, "Load the file by itself, where nothing else is at stake.", cause)
    found = {"v": 1, "path": path, "loaded": False, "not_checked": cause.value}
    return {**found, "reason": refusal.reason, "way_out": refusal.way_out}


def _by_one_process(
    reader: Reader, request: Request, paths: Sequence[str], deadline: float
) -> Tuple[List[Dict[str, Any]], Cause, str]:
    """Return the answers until the process ended, and why it ended if that was before the last file."""
    results: List[Dict[str, Any]] = []
    with reader:
        reader.lines.due = lambda: min(deadline, time.monotonic() + request.limits.seconds / 2)
        for value in reader.lines:
            if reader.isolation is None:
                reader.isolation = value.get("isolation")
                continue
            found = sound({**value, "isolation": reader.isolation})
            if found is None or len(results) == len(paths):
                break
            results.append(found)
        code, said = reader.end()
    if reader.lines.late:
        return results, Cause.TIME, "it did not end in time"
    return results, Cause.ENDED, f"with {code}: {said}"[:300]


class Reader:
    """The isolated process, its scratch folder and its output. A context manager that ends the process on
    exit.

    With `folder` it may read everything in it, imports its framework at once and waits for paths on standard
    input. Otherwise it reads `paths`.
    """

    def __init__(self, request: Request, paths: Sequence[str] = (), folder: Optional[str] = None) -> None:
        self.memory = request.limits.bytes
        self.isolation: Any = None
        self._kept = contextlib.ExitStack()
        try:
            scratch = self._kept.enter_context(tempfile.TemporaryDirectory(prefix="orch-check-"))
            self._talk = self._kept.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 # kept with the rest
            self.process = _started(request, paths, folder, scratch, self._talk)
        except BaseException:
            self._kept.close()
            raise
        self.lines = Lines(self.process)

    def end(self) -> Tuple[int, str]:
        """End the process; returns its status and the last lines that its libraries printed. May be called
        again."""
        code = _end(self.process)
        self._talk.seek(max(0, self._talk.seek(0, os.SEEK_END) - 2_000))
        return code, " ".join(self._talk.read().decode(errors="replace").strip().splitlines()[-2:])

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        _end(self.process)
        self._kept.close()


class Lines:
    """Iterate over the JSON objects that a process prints, one per line, until it ends, prints an invalid
    line, or is late."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.due: Callable[[], float] = lambda: math.inf
        self._rest = bytearray()
        self.late = False

    def __iter__(self) -> Iterator[Dict[str, Any]]:
        while True:
            line = self._line()
            if line is None:
                return
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                return
            if not isinstance(value, dict):
                return
            yield value

    def _line(self) -> Optional[bytes]:
        assert self._process.stdout
        source, due = self._process.stdout.fileno(), self.due()
        start = 0
        while True:
            place = self._rest.find(b"\n", start)
            if place >= 0:
                line = bytes(self._rest[:place])
                del self._rest[: place + 1]
                return line
            start = len(self._rest)
            left = min(due - time.monotonic(), _LONGEST_WAIT)
            if left <= 0 or not select.select([source], [], [], left)[0]:
                self.late = True
                return None
            piece = os.read(source, 1 << 20)
            if not piece or start > _MAX_ANSWER:
                return None
            self._rest += piece


def _started(
    request: Request, paths: Sequence[str], folder: Optional[str], scratch: str, talk: Any
) -> subprocess.Popen[bytes]:
    imports = {name: _module_file(request.folder, name) for name in request.modules}
    package = Path(__file__).resolve().parents[1]
    top = Path(__file__).absolute().parents[__package__.count(".") + 1]
    runtime = [str(package), str(top / (__package__ or "").partition(".")[0])]
    view = View(
        read=tuple(_view([folder] if folder else paths, imports, runtime)),
        scratch=str(Path(scratch).resolve()),
        memory=request.limits.bytes,
        file_size=min(_MOST_SCRATCH, request.limits.bytes),
        cpu_seconds=int(request.limits.seconds * (os.cpu_count() or 1)) + 1,
    )
    asked = {"layers": request.layers, "paths": list(paths), "imports": imports, "folder": folder}
    ask = {"view": asdict(view), **asked}
    enter = (
        "import importlib, sys; sys.path.insert(0, sys.argv[1]); "
        "sys.exit(importlib.import_module(sys.argv[2]).main(sys.argv[3:]))"
    )
    argv = [sys.executable, "-I", "-c", enter, str(top), f"{__package__}.inside", json.dumps(ask)]
    return subprocess.Popen(
        argv,
        stdin=subprocess.PIPE if folder else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=talk,
        env=_environment(view.scratch),
        start_new_session=True,
        cwd=view.scratch,
    )


def _environment(scratch: str) -> Dict[str, str]:
    """Return variables: of this process only those that locate libraries and choose Keras; folders are the
    scratch folder."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return {
        **kept,
        "TMPDIR": scratch,
        "KERAS_HOME": f"{scratch}/keras",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "CUDA_VISIBLE_DEVICES": "-1",
        "JAX_PLATFORMS": "cpu",
        "JOBLIB_MULTIPROCESSING": "0",
        "HDF5_PLUGIN_PRELOAD": "::",  # no filters from shared libraries
        "HDF5_USE_FILE_LOCKING": "FALSE",
    }


def _view(paths: Sequence[str], imports: Dict[str, Optional[str]], runtime: List[str]) -> List[str]:
    """Return the readable paths: artifacts, interpreter and packages, system, runtime, and the named
    modules."""
    artifacts = {each for path in paths for each in _artifact(Path(path))}
    named = [_whole(Path(file)) for file in imports.values() if file]
    prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix, *sysconfig.get_paths().values()}
    libraries = [p for p in os.environ.get("LD_LIBRARY_PATH", "").split(":") if p.startswith("/")]
    own = [each for path in prefixes for each in (path, str(Path(path).resolve()))]
    return [*artifacts, *own, *runtime, *named, *libraries, *_SYSTEM]


def _artifact(path: Path) -> List[str]:
    """Return a folder itself. For a file, return its folder, because related files lie there; but if that is
    the user's home or above it, only the file, or the files of the checkpoint."""
    if path.is_dir():
        return [str(path)]
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 # unlike Path.home, does not raise without a home
    if home.is_absolute() and path.parent.resolve() in (home.resolve(), *home.resolve().parents):
        return [str(each) for each in (path, *shards(path))]
    return [str(path.parent)]


def _module_file(folder: Optional[Path], name: str) -> Optional[str]:
    """Return the file of the module's top-level package in `folder` or its src; None if it is in neither."""
    top = name.partition(".")[0]
    for place in (folder.absolute(), folder.absolute() / "src") if folder else ():
        for file in (place / top / "__init__.py", place / f"{top}.py"):
            if file.is_file():
                return str(file)
    return None


def _whole(file: Path) -> str:
    return str(file.parent if file.name == "__init__.py" else file)


def _end(process: subprocess.Popen[bytes]) -> int:
    """Wait 2 seconds for it to exit, then kill its process group. Returns its status."""
    if process.returncode is not None:
        return process.returncode
    if process.stdin:
        process.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(2)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.stdout:
        process.stdout.close()
    return process.wait()


def _free_memory() -> int:
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 8 << 30
