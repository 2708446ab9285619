"""The verbs of a run: start, state, tail, cancel, outputs. Each takes our base folder first.

    start BASE                        the job as JSON on standard input; prints its state. A job that is
                                      `queued` begins once all runs before it have ended
    state BASE RUN                    prints its state
    tail BASE RUN OFFSET [--follow]   its output from a byte on, raw; with --follow until it has ended
    cancel BASE RUN [--grace S]       ends it; prints its state
    outputs BASE RUN [--again]        prints {"entries", "altered", "mounts", …}: what it left in its working
                                      folder, the data files that were written while it went on, and the
                                      outputs that were asked for and that it did not write; with
                                      --again as it lies there now, not as it was at its end

What the other verbs do not need, `start` and `outputs` import late: each verb is a new process.
What cannot be done is told as {"error", "kind"} on standard error with exit status 3.
"""

# Close to the kernel: descriptors, modes and races need os calls, not pathlib.
# ruff: noqa: PTH110

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from .. import processes, rundir
from ..rundir import GRACE, RunDir, RunError
from ..space import KIND, is_full

REFUSED = 3
_POLL = 0.05


class Call(NamedTuple):
    """What follows a verb."""

    base: str
    run: str = ""
    offset: int = 0
    follow: bool = False
    again: bool = False
    grace: float = GRACE


def main(argv: List[str]) -> int:
    """[verb, …]. Exit status 2 for a wrong command line."""
    try:
        call = _parsed(argv[0], argv[1:])
    except ValueError:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        return _ACTS[argv[0]](call)
    except RunError as error:
        return _refuse(error.kind, error.message, error.by)
    except OSError as error:  # for example a full disk, or a folder without write permission
        where = f": {error.filename}" if error.filename else ""
        return _refuse(
            KIND if is_full(error) else "failed", f"The machine could not do it: {error.strerror}{where}."
        )


def _refuse(kind: str, message: str, by: str = "") -> int:
    print(json.dumps({"error": message, "kind": kind, "by": by}), file=sys.stderr)
    return REFUSED


def _parsed(verb: str, words: List[str]) -> Call:
    """Parse what follows a verb: its places, then its option. Raises ValueError.

    By hand: argparse takes as long to import as the rest of a verb takes to run.
    """
    places = {"start": 1, "tail": 3}.get(verb, 2)
    if len(words) < places:
        raise ValueError(words)
    base, *named = words[:places]
    call = Call(base, named[0] if named else "", int(named[1]) if places == 3 else 0)
    option = (verb, *words[places:])
    if option == ("tail", "--follow"):
        return call._replace(follow=True)
    if option == ("outputs", "--again"):
        return call._replace(again=True)
    if len(option) == 3 and option[:2] == ("cancel", "--grace"):
        return call._replace(grace=float(option[2]))
    if len(option) > 1:
        raise ValueError(option)
    return call


def _start(call: Call) -> int:
    from .start import run_of, start

    run, spec = run_of(call.base, sys.stdin.read())
    _print(start(run, spec))
    return 0


def _state(call: Call) -> int:
    _print(rundir.state(rundir.open_run(call.base, call.run)))
    return 0


def _outputs(call: Call) -> int:
    run = _existing(call)
    if rundir.state(run)["state"] in rundir.ACTIVE:
        raise RunError("running", f"The run {run.run_id} is still active: its outputs are not final.")
    from ..transfer import outputs

    _print(outputs.left(run, call.again))
    return 0


def _existing(call: Call) -> RunDir:
    run = rundir.open_run(call.base, call.run)
    if not os.path.exists(run.spec):
        raise RunError("absent", f"There is no run {run.run_id}.")
    return run


def _print(value: Dict[str, Any]) -> None:
    print(json.dumps(value, sort_keys=True))


# ---------------------------------------------------------------- tail


def _tail(call: Call) -> int:
    """Write raw bytes to standard output. Ends early if nobody reads them any more."""
    run = _existing(call)
    sent = call.offset
    while True:
        over = not call.follow or rundir.state(run)["state"] not in rundir.ACTIVE
        sent = _send(run, sent)
        if over:
            return 0
        if _hung_up():
            return 1
        time.sleep(_POLL)


def _send(run: RunDir, offset: int) -> int:
    """Send what is available from `offset`; returns the new offset. Raises RunError, kind truncated."""
    length = rundir.log_bytes(run)
    if length < offset:
        raise RunError(
            "truncated",
            f"The output of {run.run_id} is {length} bytes long, shorter than the requested offset {offset}.",
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
    """Return whether the reader of the output is gone; a silent job would not notice this by writing."""
    poll = select.poll()
    poll.register(1, 0)
    return bool(poll.poll(0))


# ---------------------------------------------------------------- cancel


def _cancel(call: Call) -> int:
    run = _existing(call)
    _print(cancel(run, call.grace))
    return 0


def cancel(run: RunDir, grace: float) -> Dict[str, Any]:
    """End the run and all of its processes; returns its state. An ended run stays unchanged; a queued one
    never begins.
    """
    give_up = time.monotonic() + grace + 60
    while rundir.held(run) and rundir.read_json(run.exit) is None and time.monotonic() < give_up:
        started = rundir.read_json(run.started)
        begun = started is not None or rundir.is_queued(run)
        if begun and not os.path.exists(run.cancel):
            rundir.write_json(run.cancel, {"grace": grace})
        if started is not None:
            supervisor = started["supervisor"]
            processes.signal_exactly(supervisor["pid"], supervisor["start"], signal.SIGUSR1)
        time.sleep(_POLL)
    started = rundir.read_json(run.started)
    if started is not None and rundir.read_json(run.exit) is None:
        _end_orphans(run, started["job"], grace)
    return rundir.state(run)


def _end_orphans(run: RunDir, job: Dict[str, Optional[int]], grace: float) -> None:
    """End what is left of the job after its supervisor died."""
    session = job["pid"] or 0
    kill_at = time.monotonic() + grace
    for number in (signal.SIGTERM, signal.SIGKILL):
        processes.signal_all(processes.members(session, job["start"], run.trace), number)
        while processes.members(session, job["start"], run.trace) and time.monotonic() < kill_at:
            time.sleep(_POLL)
        kill_at = time.monotonic() + 5


_ACTS: Dict[str, Callable[[Call], int]] = {
    "start": _start,
    "state": _state,
    "tail": _tail,
    "cancel": _cancel,
    "outputs": _outputs,
}
