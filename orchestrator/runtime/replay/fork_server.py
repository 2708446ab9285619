"""Verb `fork-server`: import frameworks once, then run Python programs in forks of this process.

    fork-server MODULE…      imports each MODULE; one that is missing is left out

Requests are JSON objects, one per line, on standard input, and so are the answers on standard output. The
first line is {"ready": [modules], "seconds"}. A request: `program` (a script's path, or with `module` true a
module's name), `arguments`, `cwd`, `env` (the whole environment; ORCH_OBSERVE_* and ORCH_IMPOSE take effect),
`moved` ([[from, to], …]: folders that are elsewhere now), `mounts` ([[folder, path at which only the program
sees it], …], see mounting), `log` (a file), `stdin` (a file, or ""), `timeout` (seconds). Its answer: `code`
(REFUSED: the system allows no mounts; BROKEN: the program could not be started), `signal`, `timed_out`,
`seconds`. The fork sets its environment after the imports, so a variable that acts at import needs a fork
server of its own.
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
"""The code if the program was not run because the system allows no mounts for one process."""

BROKEN = 124
"""The code if the program was not started because of an error of orch."""

_POLL = 0.02


def main(argv: List[str]) -> int:
    answers = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)  # output of an import must not be read as an answer
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
    except Exception:  # the program will report it when it imports the module
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
    """Return the child's status, and whether it was killed: because time was up, or the client closed or
    wrote to standard input."""
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
    except ProcessLookupError:  # it has not created its own group yet
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
    except BaseException:  # errors of the program are caught in _run
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
    """Set environment and working folder, and reset state that the fork inherited: temporary folder and
    random state."""
    os.environ.clear()
    os.environ.update(request["env"])
    tempfile.tempdir = None  # an import may have looked it up already
    time.tzset()
    os.chdir(request["cwd"])
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(None)  # otherwise all forks would draw the same numbers
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
        os.stat(program)  # a missing program counts as not started
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
    """Set sys.path as a new Python process would: the program's folder first, moved folders at their new
    place."""
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
