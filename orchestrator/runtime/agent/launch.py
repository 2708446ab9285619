"""The verbs of a run: start, state, tail, cancel, outputs. Each takes our base folder first.

    start BASE                        the job as JSON on standard input; prints its state
    state BASE RUN                    prints its state
    tail BASE RUN OFFSET [--follow]   its output from a byte on, raw; with --follow until it has ended
    cancel BASE RUN [--grace S]       ends it; prints its state
    outputs BASE RUN [--again]        prints {"entries", "altered", "unwritten"}: what it left in its working
                                      folder, the data files that were written while it went on, and the
                                      outputs that were asked for and that it did not write; with
                                      --again as it lies there now, not as it was at its end

What cannot be done is told as {"error", "kind"} on standard error with exit status 3.
"""

# Thin over the kernel: descriptors, modes and races are said in os calls.
# ruff: noqa: PTH101, PTH103, PTH110, PTH112, PTH117, PTH208

from __future__ import annotations

import argparse
import hashlib
import json
import os
import select
import signal
import sys
import time
import traceback
from typing import Any, Dict, List, Optional

from .. import processes, rundir
from ..rundir import RunDir, RunError
from ..transfer import outputs
from ..transfer.stage import stage
from .command import Command, command
from .supervise import GRACE, supervise

REFUSED = 3
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
}
"""Of a spec, with what they are when left out."""


def main(argv: List[str]) -> int:
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.act(arguments))
    except RunError as error:
        return _refuse(error.kind, error.message)
    except OSError as error:  # a full disk, a folder that may not be written, …
        where = f": {error.filename}" if error.filename else ""
        return _refuse("failed", f"The machine could not do it: {error.strerror}{where}.")


def _refuse(kind: str, message: str) -> int:
    print(json.dumps({"error": message, "kind": kind}), file=sys.stderr)
    return REFUSED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="orch-runtime")
    verbs = parser.add_subparsers(required=True)
    for name, act in (("start", _start), ("state", _state), ("tail", _tail), ("cancel", _cancel)):
        _verb(verbs, name, act)
    _verb(verbs, "outputs", _outputs)
    return parser


def _verb(verbs: Any, name: str, act: Any) -> None:
    verb = verbs.add_parser(name)
    verb.set_defaults(act=act)
    verb.add_argument("base")
    if name != "start":
        verb.add_argument("run")
    if name == "tail":
        verb.add_argument("offset", type=int)
        verb.add_argument("--follow", action="store_true")
    if name == "outputs":
        verb.add_argument("--again", action="store_true")
    if name == "cancel":
        verb.add_argument("--grace", type=float, default=GRACE)


# ---------------------------------------------------------------- start


def _start(arguments: argparse.Namespace) -> int:
    spec = _read_spec(sys.stdin.read())
    run = rundir.open_run(arguments.base, spec["run_id"])
    os.makedirs(run.root, exist_ok=True)
    os.chmod(run.root, 0o700)
    _print(start(run, spec))
    return 0


def start(run: RunDir, spec: Dict[str, Any]) -> Dict[str, Any]:
    """Begin the run unless it began already; its state. Raises RunError, kind conflict, for another spec.

    Only the holder of the lock prepares, and it hands the lock to the supervisor. So of two starts one waits
    for the other, and one that died is taken up by the next.
    """
    give_up = time.monotonic() + _PATIENCE
    while time.monotonic() < give_up:
        lock = rundir.try_lock(run)
        if lock is not None:
            try:
                _agree(run, spec)
                if rundir.read_json(run.started) is None:
                    _begin(run, spec, lock)
            finally:
                os.close(lock)
            return rundir.state(run)
        if rundir.read_json(run.started) is not None:
            _agree(run, spec)
            return rundir.state(run)
        time.sleep(_POLL)
    raise RunError("failed", f"The run {run.run_id} has been about to start for {_PATIENCE:.0f} s.")


def _begin(run: RunDir, spec: Dict[str, Any], lock: int) -> None:
    rundir.write_json(run.spec, _sealed(spec, os.urandom(16).hex()))
    try:
        if spec["trees"]:
            stage(run, spec["trees"])
        wanted = command(run, spec, os.environ)
        if not os.path.isdir(wanted.cwd):
            raise RunError("stage", f"The working folder {spec['cwd']!r} does not exist in what was synced.")
        if spec["observe_steps"] > 0:
            os.makedirs(run.observe, exist_ok=True)
    except OSError as error:
        raise RunError("stage", f"The run's folder could not be laid out: {error}.") from error
    _detach(run, wanted, lock)


def _sealed(spec: Dict[str, Any], salt: str) -> Dict[str, Any]:
    """The job without the values of its variables, which may be secrets: digests tell whether they are equal.

    The values reach the job from memory; no file ever holds them.
    """

    def seal(name: str, value: str) -> str:
        return hashlib.sha256(f"{salt}\0{name}\0{value}".encode("utf-8", "surrogatepass")).hexdigest()

    return {**spec, "env": {name: seal(name, value) for name, value in spec["env"].items()}, "salt": salt}


def _detach(run: RunDir, wanted: Command, lock: int) -> None:
    """Fork the supervisor, which belongs to nobody's session, and wait until it says that the run began."""
    reading, writing = os.pipe()
    first = os.fork()
    if first == 0:
        _in_the_background(run, wanted, lock, writing)
    os.close(writing)
    os.waitpid(first, 0)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read().decode(errors="replace")
    if said != "ok":
        raise RunError("failed", said or "The run's supervisor died before the run began; start it again.")


def _in_the_background(run: RunDir, wanted: Command, lock: int, ready: int) -> None:
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
        supervise(run, wanted, ready)
        status = 0
    except BaseException:
        traceback.print_exc()  # into supervisor.log: the run will be found lost, and this says why
    finally:
        os._exit(status)


def _close_all_but(*kept: int) -> None:
    for name in os.listdir("/dev/fd"):
        if int(name) not in kept:
            try:
                os.close(int(name))
            except OSError:  # the one that listed them
                continue


def _read_spec(text: str) -> Dict[str, Any]:
    """The job as given, every field present. Raises RunError, kind invalid."""
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
    """The same id means the same job. Values are not told: an environment may hold secrets."""
    known = rundir.read_json(run.spec)
    if known is None:
        return
    asked = _sealed(spec, known["salt"]) if "salt" in known else spec
    fields = [name for name in _FIELDS if name != "awaited" and known.get(name) != asked[name]]
    if not fields:
        return
    if "env" in fields:
        before, now = known.get("env", {}), asked["env"]
        names = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
        fields[fields.index("env")] = f"env ({', '.join(names)})"
    raise RunError(
        "conflict",
        f"There is a run {run.run_id} already, and it is not this job: {', '.join(fields)} differ.",
    )


# ---------------------------------------------------------------- state, outputs


def _state(arguments: argparse.Namespace) -> int:
    _print(rundir.state(rundir.open_run(arguments.base, arguments.run)))
    return 0


def _outputs(arguments: argparse.Namespace) -> int:
    run = _existing(arguments)
    if rundir.state(run)["state"] == "running":
        raise RunError("running", f"The run {run.run_id} still goes on: its outputs are not final.")
    entries = outputs.outputs(run, arguments.again)
    _print({"entries": entries, "altered": outputs.altered_data(run), "unwritten": outputs.unwritten(run)})
    return 0


def _existing(arguments: argparse.Namespace) -> RunDir:
    run = rundir.open_run(arguments.base, arguments.run)
    if not os.path.exists(run.spec):
        raise RunError("absent", f"There is no run {run.run_id}.")
    return run


def _print(value: Dict[str, Any]) -> None:
    print(json.dumps(value, sort_keys=True))


# ---------------------------------------------------------------- tail


def _tail(arguments: argparse.Namespace) -> int:
    """Raw bytes to standard output. Ends early when nobody reads them any more."""
    run = _existing(arguments)
    sent = arguments.offset
    while True:
        over = not arguments.follow or rundir.state(run)["state"] != "running"
        sent = _send(run, sent)
        if over:
            return 0
        if _hung_up():
            return 1
        time.sleep(_POLL)


def _send(run: RunDir, offset: int) -> int:
    """Send what there is from `offset` on; the new offset. Raises RunError, kind truncated."""
    length = rundir.log_bytes(run)
    if length < offset:
        raise RunError(
            "truncated",
            f"The output of {run.run_id} is {length} bytes long: there is no byte {offset} to go on from.",
        )
    if length > offset:
        with open(rundir.open_plain(run.log), "rb", buffering=0) as log:
            log.seek(offset)
            while offset < length:
                block = log.read(min(1 << 16, length - offset))
                if not block:
                    break
                _write_all(block)
                offset += len(block)
    return offset


def _write_all(block: bytes) -> None:
    left = memoryview(block)
    while left:
        left = left[os.write(1, left) :]


def _hung_up() -> bool:
    """Whether the reader of our output has gone, which without output no write would tell us."""
    poll = select.poll()
    poll.register(1, 0)
    return bool(poll.poll(0))


# ---------------------------------------------------------------- cancel


def _cancel(arguments: argparse.Namespace) -> int:
    run = _existing(arguments)
    _print(cancel(run, arguments.grace))
    return 0


def cancel(run: RunDir, grace: float) -> Dict[str, Any]:
    """End the run and everything of it; its state. A run that is over already stays as it is."""
    give_up = time.monotonic() + grace + 60
    while rundir.held(run) and rundir.read_json(run.exit) is None and time.monotonic() < give_up:
        started = rundir.read_json(run.started)
        if started is not None and not os.path.exists(run.cancel):
            rundir.write_json(run.cancel, {"grace": grace})
            processes.signal_all([started["supervisor"]["pid"]], signal.SIGUSR1)
        time.sleep(_POLL)
    started = rundir.read_json(run.started)
    if started is not None and rundir.read_json(run.exit) is None:
        _end_orphans(run, started["job"], grace)
    return rundir.state(run)


def _end_orphans(run: RunDir, job: Dict[str, Optional[int]], grace: float) -> None:
    """The supervisor is dead: end what is left of its job."""
    session = job["pid"] or 0
    kill_at = time.monotonic() + grace
    for number in (signal.SIGTERM, signal.SIGKILL):
        processes.signal_all(processes.members(session, job["start"], run.trace), number)
        while processes.members(session, job["start"], run.trace) and time.monotonic() < kill_at:
            time.sleep(_POLL)
        kill_at = time.monotonic() + 5
