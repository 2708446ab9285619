"""Start a run: prepare its folder and fork its supervisor, once, however often it is requested."""

# Close to the kernel: descriptors, modes and races need os calls, not pathlib.
# ruff: noqa: PTH101, PTH103, PTH108, PTH112, PTH117, PTH208

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from typing import Any, Callable, Dict, Optional, Sequence, Tuple

from .. import rundir
from ..rundir import RunDir, RunError
from ..space import KIND, is_full
from ..transfer.stage import stage
from . import queueing
from .command import Command, command
from .supervise import BEGAN, supervise

_PATIENCE = 600.0
_POLL = 0.05

_FIELDS: Dict[str, Any] = {
    "run_id": None,
    "argv": None,
    "python": None,
    "cwd": ".",
    "env": {},
    "trees": [],
    "observe_steps": 0,
    "stop_after_observed": False,
    "observe_light": 0,
    "stdin": "",
    "outputs": [],
    "awaited": False,
    "stall": 0.0,
    "on_nan": "warn",
    "checkpoints": [],
    "restored": {},
    "grant": {},
    "serves": "",
    "queued": False,
}
"""The fields of a spec, with their defaults."""


_OF_THE_CALL = ("awaited", "checkpoints", "restored", "grant", "queued")
"""Fields of a spec that may differ in a repeated call for the same job."""


def run_of(base: str, text: str) -> Tuple[RunDir, Dict[str, Any]]:
    """Return the run's folder, created if missing, and the job in `text`. Raises RunError."""
    spec = _read_spec(text)
    run = rundir.open_run(base, spec["run_id"])
    os.makedirs(run.root, exist_ok=True)
    os.chmod(run.root, 0o700)
    return run, spec


def start(run: RunDir, spec: Dict[str, Any]) -> Dict[str, Any]:
    """Start the run unless it has started; returns its state. Raises RunError, kind conflict, for another
    spec.

    Only the holder of the lock prepares, and it passes the lock to the supervisor. So of two starts one waits
    for the other, and one that died is continued by the next.
    """
    give_up = time.monotonic() + _PATIENCE
    while time.monotonic() < give_up:
        lock = rundir.try_lock(run)
        if lock is not None:
            try:
                _agree(run, spec)
                if rundir.read_json(run.started) is None and rundir.read_json(run.exit) is None:
                    _begin_or_forget(run, spec, lock)
            finally:
                os.close(lock)
            return rundir.state(run)
        if rundir.read_json(run.started) is not None or rundir.is_queued(run):
            _agree(run, spec)
            return rundir.state(run)
        time.sleep(_POLL)
    raise RunError("failed", f"The run {run.run_id} did not start within {_PATIENCE:.0f} s.")


def _begin_or_forget(run: RunDir, spec: Dict[str, Any], lock: int) -> None:
    """Begin the run. If that is refused, no job is left to which its id would belong."""
    try:
        _begin(run, spec, lock)
    except RunError:
        if rundir.read_json(run.started) is None:
            with contextlib.suppress(OSError):
                os.unlink(run.spec)
        raise


def _begin(run: RunDir, spec: Dict[str, Any], lock: int) -> None:
    queueing.leave(run)
    rundir.write_json(run.spec, _sealed(spec, os.urandom(16).hex()))
    try:
        if spec["trees"]:
            stage(run, spec["trees"], spec["restored"])
        wanted = command(run, spec, os.environ)
        if not os.path.isdir(wanted.cwd):
            raise RunError("stage", f"The working folder {spec['cwd']!r} does not exist in the synced files.")
        if spec["observe_steps"] > 0:
            os.makedirs(run.observe, exist_ok=True)
    except OSError as error:
        kind = KIND if is_full(error) else "stage"
        raise RunError(kind, f"The run's folder could not be created: {error}.") from error
    _detach(run, wanted, spec, lock)


def _sealed(spec: Dict[str, Any], salt: str) -> Dict[str, Any]:
    """Return the job without possible secrets: the values of its variables, of which digests are kept for
    comparison, and the form for uploads to its store.

    These are passed to the processes in memory; no file contains them.
    """

    def seal(name: str, value: str) -> str:
        return hashlib.sha256(f"{salt}\0{name}\0{value}".encode("utf-8", "surrogatepass")).hexdigest()

    env = {name: seal(name, value) for name, value in spec["env"].items()}
    return {**spec, "env": env, "salt": salt, "grant": {}}


def _detach(run: RunDir, wanted: Command, spec: Dict[str, Any], lock: int) -> None:
    """Fork the supervisor into a session of its own, and wait until it reports that the run began, or is in
    the queue.
    """
    reading, writing = os.pipe()
    first = os.fork()
    if first == 0:
        _in_the_background(run, wanted, spec, lock, writing)
    os.close(writing)
    os.waitpid(first, 0)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read().decode(errors="replace")
    if said != BEGAN:
        raise RunError("failed", said or "The run's supervisor died before the run began; start it again.")


def _in_the_background(run: RunDir, wanted: Command, spec: Dict[str, Any], lock: int, ready: int) -> None:
    """In the child: a new session, no terminal, no descriptor of the connection. Never returns."""
    status = 1
    try:
        os.setsid()
        if os.fork() > 0:
            os._exit(0)
        os.chdir("/")
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        diary = os.open(run.path("supervisor.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for descriptor in (1, 2):
            os.dup2(diary, descriptor)
        _close_all_but(0, 1, 2, lock, ready)
        pipe = _Pipe(ready)
        tell = _waited(run, spec, pipe)
        if tell is not None:
            _begin_beside(run, spec, (lock, *pipe.descriptors))
            supervise(run, wanted, tell, float(spec["stall"]), spec["on_nan"] == "stop")
        status = 0
    except BaseException:
        _say_why()  # goes to supervisor.log, which explains why the run was lost
    finally:
        os._exit(status)


def _say_why() -> None:
    """Print the exception that is handled, with its traceback."""
    import traceback

    traceback.print_exc()


class _Pipe:
    """The pipe by which the supervisor reports to `start`, once."""

    def __init__(self, ready: int) -> None:
        self._ready: Optional[int] = ready

    @property
    def descriptors(self) -> Tuple[int, ...]:
        return () if self._ready is None else (self._ready,)

    def tell(self, text: str) -> None:
        assert self._ready is not None
        try:
            os.write(self._ready, text.encode())
        except BrokenPipeError:  # the caller was killed meanwhile; the run continues
            pass
        finally:
            os.close(self._ready)
            self._ready = None


def _waited(run: RunDir, spec: Dict[str, Any], pipe: _Pipe) -> Optional[Callable[[str], None]]:
    """Wait for the run's turn. Return the function that reports whether it began; None if it was cancelled
    meanwhile. A run that has to wait is reported as begun, since `start` must not wait for others.
    """
    if not spec["queued"]:
        return pipe.tell
    queueing.enter(run)
    if queueing.is_next(run):
        return pipe.tell
    pipe.tell(BEGAN)
    if not queueing.wait(run):
        return None
    queueing.renew_stamps(run)
    return queueing.teller(run)


def _begin_beside(run: RunDir, spec: Dict[str, Any], handed: Sequence[int]) -> None:
    """Start the processes that keep the run's checkpoints and upload them to its store. `handed`: descriptors
    that only the supervisor may hold.
    """
    from ..keep import keep
    from ..upload import upload

    if spec["checkpoints"]:
        _fork_beside(keep.claim(run), handed, lambda: keep.keep(run, spec))
    grant = upload.grant_of(spec)
    if grant is not None:
        _fork_beside(upload.claim(run), handed, lambda: upload.upload(run, grant))


def _fork_beside(claimed: int, handed: Sequence[int], work: Callable[[], None]) -> None:
    """Fork a process that is not a child of the supervisor, which ends all processes of the job. Only it
    holds `claimed`.
    """
    first = os.fork()
    if first > 0:
        os.close(claimed)
        os.waitpid(first, 0)
        return
    try:
        if os.fork() == 0:
            for descriptor in handed:
                os.close(descriptor)
            work()
    except BaseException:
        _say_why()
    finally:
        os._exit(0)


def _close_all_but(*kept: int) -> None:
    for name in os.listdir("/dev/fd"):
        if int(name) not in kept:
            try:
                os.close(int(name))
            except OSError:  # the descriptor that was used to list the others
                continue


def _read_spec(text: str) -> Dict[str, Any]:
    """Parse the job; every field must be present. Raises RunError, kind invalid."""
    try:
        given = json.loads(text)
    except ValueError as error:
        raise RunError("invalid", f"The job is not JSON: {error}.") from error
    unknown = sorted(set(given) - set(_FIELDS))
    missing = sorted(name for name, default in _FIELDS.items() if default is None and not given.get(name))
    if unknown or missing:
        raise RunError("invalid", f"The job lacks {missing} or has unknown fields {unknown}.")
    spec = {name: given.get(name, default) for name, default in _FIELDS.items()}
    if not spec["trees"] and not os.path.isabs(spec["cwd"]):
        raise RunError("invalid", "A job without trees needs an absolute working folder.")
    return spec


def _agree(run: RunDir, spec: Dict[str, Any]) -> None:
    """Require that the same id means the same job. Values are not shown: they may be secrets."""
    known = rundir.read_json(run.spec)
    if known is None:
        return
    asked = _sealed(spec, known["salt"]) if "salt" in known else spec
    compared = [name for name in _FIELDS if name not in _OF_THE_CALL]
    fields = [name for name in compared if known.get(name, _FIELDS[name]) != asked[name]]
    if not fields:
        return
    if "env" in fields:
        before, now = known.get("env", {}), asked["env"]
        names = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
        fields[fields.index("env")] = f"env ({', '.join(names)})"
    raise RunError(
        "conflict",
        f"The run id {run.run_id} belongs to another job: {', '.join(fields)} differ.",
    )
