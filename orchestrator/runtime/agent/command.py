"""A job's command: its environment, and its first process, which waits until it is released."""

# Close to the kernel: descriptors, modes and races need os calls, not pathlib.
# ruff: noqa: PTH100, PTH110, PTH112, PTH118, PTH120

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import sys
from dataclasses import dataclass
from typing import Any, Dict, Mapping, Optional, Tuple

from ..processes import set_oom_score, start_of
from ..rundir import RunDir
from . import mounts

_OF_THE_CONNECTION = ("SSH_CLIENT", "SSH_CONNECTION", "SSH_TTY", "SSH_ORIGINAL_COMMAND", "OLDPWD", "_")
_OF_ANOTHER_PYTHON = ("VIRTUAL_ENV", "VIRTUAL_ENV_PROMPT", "PYTHONHOME", "__PYVENV_LAUNCHER__")
_PR_CAPBSET_DROP = 24
_CAP_DAC_OVERRIDE = 1
"""The capability by which root writes to files whose mode forbids it."""
_NOT_EXECUTABLE = 126
_NOT_FOUND = 127
_NO_NEW_PRIVILEGES = 38
"""PR_SET_NO_NEW_PRIVS of linux/prctl.h."""


@dataclass(frozen=True)
class Command:
    """Execute `program` under the name argv[0], in `cwd` (absolute), with exactly `environment`.

    `stdin`: a file or a named pipe; "" for none. `bound`: read-only files are read-only for it even if it
    runs as root.
    """

    program: str
    argv: Tuple[str, ...]
    cwd: str
    environment: Mapping[str, str]
    stdin: str = ""
    bound: bool = False


def command(run: RunDir, spec: Mapping[str, Any], inherited: Mapping[str, str]) -> Command:
    """Return the command of a spec; "python" and "python3" mean the job's own interpreter."""
    argv = list(spec["argv"])
    if argv[0] in ("python", "python3"):
        argv[0] = spec["python"]
    cwd = os.path.normpath(os.path.join(run.work, spec["cwd"])) if spec["trees"] else spec["cwd"]
    bound = any(tree.get("digest") and not tree["copied"] for tree in spec["trees"])
    return Command(argv[0], tuple(argv), cwd, environment(run, spec, cwd, inherited), spec["stdin"], bound)


def environment(
    run: RunDir, spec: Mapping[str, Any], cwd: str, inherited: Mapping[str, str]
) -> Dict[str, str]:
    """Return the environment of a job: that of this machine without the variables of the connection, the
    job's own, and our hook's.
    """
    dropped = _OF_THE_CONNECTION + _OF_ANOTHER_PYTHON
    found = {
        name: value
        for name, value in inherited.items()
        if name not in dropped and not name.startswith("ORCH_")
    }
    found["PWD"] = cwd
    found["PYTHONUNBUFFERED"] = "1"  # output is visible at once, and not lost if the job is killed
    bin_ = os.path.dirname(spec["python"])
    if os.path.exists(os.path.join(os.path.dirname(bin_), "pyvenv.cfg")):
        found["VIRTUAL_ENV"] = os.path.dirname(bin_)
    found.update(spec["env"])
    found["PATH"] = _joined(bin_, found.get("PATH") or os.defpath)
    found["PYTHONPATH"] = _joined(_hook(), found.get("PYTHONPATH"))
    found["ORCH_TRACE"] = run.trace
    if spec["observe_steps"] > 0:
        found["ORCH_OBSERVE_DIR"] = run.observe
        found["ORCH_OBSERVE_STEPS"] = str(spec["observe_steps"])
        if spec.get("observe_light"):
            found["ORCH_OBSERVE_LIGHT"] = str(spec["observe_light"])
        if spec["stop_after_observed"]:
            found["ORCH_OBSERVE_STOP"] = "1"
    return found


def _hook() -> str:
    return os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "hook")


def _joined(first: str, rest: Optional[str]) -> str:
    return f"{first}{os.pathsep}{rest}" if rest else first


@dataclass(frozen=True)
class Child:
    """The job's first process, leader of its own session. It does nothing until `release`; if we die before,
    it ends without having done anything. `listener`: receives its mounts, if these are watched.
    """

    pid: int
    start: Optional[int]
    gate: int
    report: int
    listener: Optional[int] = None

    def release(self) -> None:
        """Let the process become the job."""
        os.write(self.gate, b"g")
        os.close(self.gate)

    def failure(self) -> Optional[str]:
        """Return why the command could not be executed, once that is known; None if it was."""
        text = os.read(self.report, 4096).decode(errors="replace")
        return text or None


def launch(wanted: Command, log: str, oom_score: Optional[str]) -> Child:
    """Fork the job's first process, with all its output in `log`. Raises OSError."""
    gate_out, gate_in = os.pipe()
    report_out, report_in = os.pipe()
    libc = ctypes.CDLL(None) if wanted.bound and sys.platform == "linux" and os.geteuid() == 0 else None
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    given = os.open(wanted.stdin or os.devnull, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    os.set_blocking(given, True)  # opening the pipe does not block, but reading it must
    here, there = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        if libc is not None:
            libc.prctl(_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE, 0, 0, 0)
        here.close()
        with there:
            if wanted.bound:
                mounts.tell(there)
        _become(wanted, gate_out, gate_in, report_in, (given, output), oom_score)
    there.close()
    for descriptor in (gate_out, report_in, given, output):
        os.close(descriptor)
    with here:
        listener = mounts.told(here)
    return Child(pid, start_of(pid), gate_in, report_out, listener)


def _become(
    wanted: Command,
    gate_out: int,
    gate_in: int,
    report: int,
    streams: Tuple[int, int],
    oom_score: Optional[str],
) -> None:
    """In the child: wait for the release, then become the job. Never returns."""
    status = _NOT_EXECUTABLE
    try:
        os.setsid()
        _forget_handlers()
        os.close(gate_in)
        if os.read(gate_out, 1) != b"g":
            os._exit(status)
        if oom_score is not None:
            set_oom_score(oom_score)
        given, output = streams
        os.dup2(given, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(wanted.cwd)
        _stay_unprivileged()
        os.execvpe(wanted.program, wanted.argv, wanted.environment)
    except OSError as error:
        if not os.path.isdir(wanted.cwd):
            _say(report, str(error))
        elif isinstance(error, FileNotFoundError) or _is_nowhere(wanted):
            status = _NOT_FOUND
            _say(report, f"The command {wanted.argv[0]} was not found.")
        else:
            _say(report, f"The command {wanted.argv[0]} could not be executed: {error.strerror}.")
    finally:
        os._exit(status)


def _is_nowhere(wanted: Command) -> bool:
    """Whether no folder of PATH has the program; an unreadable folder would look like a forbidden program."""
    by_name = "/" not in wanted.program
    return by_name and shutil.which(wanted.program, os.F_OK, wanted.environment.get("PATH")) is None


DEADLINE_HERE = "/var/lib/orch/deadline"
"""This file exists if the machine enforces its deadline as root, and its user might become root."""


def _stay_unprivileged() -> None:
    """Prevent the job's processes from becoming root, by sudo or otherwise, if the deadline is enforced on
    this machine.

    Raises OSError if the kernel cannot do that: the job then does not start.
    """
    if os.geteuid() == 0 or not os.path.exists(DEADLINE_HERE):
        return
    import ctypes

    if ctypes.CDLL(None).prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
        raise OSError(0, "it could not be kept from becoming root")


def _forget_handlers() -> None:
    """Reset signal handling to what a shell would give a job."""
    signal.set_wakeup_fd(-1)
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _say(report: int, text: str) -> None:
    """Report to the supervisor, and to the run's output."""
    os.write(report, text.encode())
    os.write(2, f"{text}\n".encode())
