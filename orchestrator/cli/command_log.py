"""A log file for each command: its messages, the durations of its operations, and its end.

It is created with the first message, so commands that only show something write none.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from enum import Enum
from pathlib import Path
from typing import Any, TextIO

from orchestrator.cli.terminal import ours

FOLDER = "log"
KEPT = 100
"""Log files that are kept; older ones are removed."""


class Loudness(Enum):
    """How much a command prints while it works: notices only, progress too, or details too."""

    QUIET = "quiet"
    NORMAL = "normal"
    VERBOSE = "verbose"


class CommandLog:
    """The log of one command. What cannot be written, on a full disk for example, is dropped.

    `params`: the command's parsed options and arguments, by name.
    """

    def __init__(self, verb: str, params: Mapping[str, Any], loudness: Loudness = Loudness.NORMAL) -> None:
        self.loudness = loudness
        self.path: Path | None = None
        self._verb, self._params = verb, params
        self._began = time.monotonic()
        self._file: TextIO | None = None
        self._gone = False

    def line(self, text: str) -> None:
        """Append one entry: seconds since the command began, and the text."""
        if self._file is None and not self._gone:
            self._open()
        self._write(f"{time.monotonic() - self._began:9.3f}  {text}")

    def failure(self, error: BaseException) -> None:
        """Append an error with its traceback."""
        import traceback

        self.line("".join(traceback.format_exception(error)).rstrip())

    def end(self, code: int) -> None:
        """Append the exit code, if the log file exists."""
        if self._file is not None:
            self.line(f"exit code {code}")
            with suppress(OSError):
                self._file.close()
            self._file, self._gone = None, True

    def _open(self) -> None:
        from orchestrator import api

        folder = api.state_home(os.environ) / FOLDER
        name = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{self._verb}-{os.getpid()}.log"
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError:
            self._gone = True
            return
        self._file = os.fdopen(handle, "w", encoding="utf-8", errors="replace")
        self.path = folder / name
        for key, value in self._header().items():
            self._write(f"{key}: {value}")
        _prune(folder)

    def _header(self) -> dict[str, str]:
        from importlib.metadata import version

        return {
            "orch": f"{version('orch-train')}, Python {sys.version.split()[0]}, {sys.platform}",
            "began": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
            "folder": str(Path.cwd()),
            "command": f"orch {self._verb} {_shown(self._params)}".rstrip(),
        }

    def _write(self, text: str) -> None:
        if self._file is not None:
            with suppress(OSError, ValueError):
                self._file.write(ours(text) + "\n")
                self._file.flush()


def _shown(params: Mapping[str, Any]) -> str:
    """The parameters that were given. Left out, because they may hold secrets: the words of a command that is
    to be run, and values of variables.
    """
    from orchestrator import api

    words = []
    for name, value in params.items():
        if name == "command" or value in (None, False, (), []):
            continue
        values = value if isinstance(value, (list, tuple)) else (value,)
        given = api.redacted([str(each) for each in values]) if name == "sets" else values
        words.append(
            name if value is True else f"{name}={','.join(shlex.quote(str(each)) for each in given)}"
        )
    return " ".join(words)


def _prune(folder: Path) -> None:
    """Remove the oldest files beyond KEPT. Their names begin with the time."""
    with suppress(OSError):
        for old in sorted(folder.glob("*.log"))[:-KEPT]:
            old.unlink(missing_ok=True)


_current: ContextVar[CommandLog | None] = ContextVar("command_log", default=None)


def current() -> CommandLog | None:
    """Return the log of the command that this process runs; None outside of a command."""
    return _current.get()


@contextmanager
def logged(log: CommandLog) -> Iterator[None]:
    """Make `log` the current one in the block, and append how the block ended."""
    before = _current.set(log)
    code = 1
    try:
        yield
        code = 0
    except BaseException as ended:
        code = int(getattr(ended, "exit_code", 1))
        raise
    finally:
        log.end(code)
        _current.reset(before)


def is_quiet() -> bool:
    """Whether the command prints notices and results only."""
    log = current()
    return log is not None and log.loudness is Loudness.QUIET
