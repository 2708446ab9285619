"""Verb `fork-server`: imports frameworks once, then runs Python programs in forks of itself.

    fork-server MODULE…      imports each MODULE; one that is missing is left out

Requests are JSON objects, one a line, on standard input; answers likewise on standard output. The first line
says {"ready": [modules], "seconds"}. A request: `program` (a script's path, or with `module` true a module's
name), `arguments`, `cwd`, `env` (the whole environment; ORCH_OBSERVE_* and ORCH_IMPOSE are heeded), `moved`
([[from, to], …]: folders that now lie elsewhere), `mounts` ([[folder, where the program alone sees it], …],
see mounting), `log` (a file), `stdin` (a file, or ""), `timeout` (seconds). Its answer: `code` (REFUSED: no
mounts of its own were to be had; BROKEN: the program could not be begun), `signal`, `timed_out`, `seconds`.
The fork sets its environment after the imports: a variable that acts at import needs its own server.
"""

# Close to the kernel: descriptors, modes and races need os calls, not pathlib.
# ruff: noqa: PTH100, PTH109, PTH110, PTH116, PTH118, PTH120

from __future__ import annotations

import atexit
import importlib
import json
import os
import select
import signal
import sys
import tempfile
import time
import traceback
from typing import Any, Dict, List, Sequence, Tuple

from ..observe import install_now
from ..observe.runner import run_as_main
from ..observe.settings import from_environment
from . import interventions, mounting

Request = Dict[str, Any]

REFUSED = 125
"""The code of a program that was not run: the system lets it have no mounts of its own."""

BROKEN = 124
"""The code where the program was not begun, by a fault of ours."""

_POLL = 0.02


def main(argv: List[str]) -> int:
    answers = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)  # what an import prints is no answer
    begun = time.monotonic()
    ready = [name for name in argv if _imported(name)]
    _say(answers, {"ready": ready, "seconds": round(time.monotonic() - begun, 3)})
    for line in iter(sys.stdin.readline, ""):
        _say(answers, _serve(json.loads(line)))
    return 0


def _say(answers: Any, value: Dict[str, Any]) -> None:
    answers.write(json.dumps(value) + "\n")
    answers.flush()


def _imported(name: str) -> bool:
    try:
        importlib.import_module(name)
    except Exception:  # the program itself will say what it lacks
        return False
    return True


# ---------------------------------------------------------------- in the fork server


def _serve(request: Request) -> Dict[str, Any]:
    begun = time.monotonic()
    pid = os.fork()
    if pid == 0:
        _become(request)
    status, timed_out = _wait(pid, begun + float(request.get("timeout") or 600.0))
    killed = os.WIFSIGNALED(status)
    return {
        "code": None if killed else os.WEXITSTATUS(status),
        "signal": os.WTERMSIG(status) if killed else None,
        "timed_out": timed_out,
        "seconds": round(time.monotonic() - begun, 3),
    }


def _wait(pid: int, until: float) -> Tuple[int, bool]:
    """The child's end, and whether we ended it: it took too long, or nobody asks any more."""
    asking = select.poll()
    asking.register(0, 0)
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status, False
        if time.monotonic() > until or asking.poll(0):
            _kill(pid)
            return os.waitpid(pid, 0)[1], True
        time.sleep(_POLL)


def _kill(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:  # it has not made its own group yet
        os.kill(pid, signal.SIGKILL)


# ---------------------------------------------------------------- in the child


def _become(request: Request) -> None:
    """Run the program as `python program` would. Never returns."""
    code = 1
    try:
        os.setsid()
        _redirect(request["log"], request.get("stdin") or os.devnull)
        if request.get("mounts"):
            mounting.mount_all(request["mounts"])
        _surround(request)
        code = _run(request)
    except mounting.Refused as refused:
        print(refused, file=sys.stderr)
        code = REFUSED
    except BaseException:  # what the program raises is caught where it runs
        traceback.print_exc()
        code = BROKEN
    finally:
        _leave(code)


def _redirect(log: str, given: str) -> None:
    os.dup2(os.open(given, os.O_RDONLY), 0)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(output, 1)
    os.dup2(output, 2)


def _surround(request: Request) -> None:
    """Environment, working folder, and random state that no parent has left."""
    os.environ.clear()
    os.environ.update(request["env"])
    tempfile.tempdir = None  # which an import may have looked up already
    time.tzset()
    os.chdir(request["cwd"])
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(None)  # else every fork would draw the same numbers as its siblings
    sys.dont_write_bytecode = True


def _run(request: Request) -> int:
    program, arguments = str(request["program"]), [str(word) for word in request["arguments"]]
    _search_path(request)
    sys.argv = [program, *arguments]
    interventions.install(interventions.from_environment(os.environ), now=True)
    wanted = from_environment(os.environ)
    if wanted is not None:
        install_now(wanted)
    if not request.get("module"):
        os.stat(program)  # one that is not there was never begun
    try:
        run_as_main(program, module=bool(request.get("module")))
    except SystemExit as ended:
        return _status(ended.code)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def _search_path(request: Request) -> None:
    """sys.path as a fresh Python would have it there: the program's folder first, moved folders as moved."""
    ours = os.path.dirname(_PACKAGE)
    first = os.getcwd() if request.get("module") else os.path.dirname(os.path.abspath(request["program"]))
    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    own = [os.path.abspath(entry) for entry in named if entry and not _is_hook(entry)]
    rest = [entry for entry in sys.path if entry and os.path.realpath(entry) != os.path.realpath(ours)]
    sys.path[:] = [first, *dict.fromkeys(_moved(entry, request["moved"]) for entry in [*own, *rest])]
    importlib.invalidate_caches()


def _is_hook(folder: str) -> bool:
    return os.path.realpath(folder) == os.path.realpath(os.path.join(_PACKAGE, "hook"))


def _moved(path: str, moved: Sequence[Sequence[str]]) -> str:
    for source, target in moved:
        if path == source or path.startswith(source + os.sep):
            there = target + path[len(source) :]
            if os.path.exists(there):
                return there
    return path


def _status(code: Any) -> int:
    if code is None or isinstance(code, int):
        return int(code or 0) & 0xFF
    print(code, file=sys.stderr)
    return 1


def _leave(code: int) -> None:
    try:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
