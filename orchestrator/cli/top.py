"""orch top: the current state of machines and runs, live."""

from __future__ import annotations

import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.options import Json
from orchestrator.cli.output import emit, guarded
from orchestrator.cli.terminal import ours
from orchestrator.model.counted import counted

if TYPE_CHECKING:
    from orchestrator.api.live_status import Now, Top

_REDRAW_S = 1.0
_QUIT = ("q", "Q")


@guarded
def top(
    every: Annotated[
        float, typer.Option("--every", min=0.5, metavar="SECONDS", help="Time between two updates.")
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print the state once and end.")] = False,
    as_json: Json = False,
) -> None:
    """Show what the project's machines and runs are doing, live, until q or Ctrl-C.

    With --once, with --json, or if stdout is no terminal, it prints the state once and ends.
    """
    from orchestrator import api

    with api.top() as asked:
        if once or as_json or not sys.stdout.isatty():
            now = asked.look()
            emit("top", now.as_json(), as_json, _text(now, 0.0))
        else:
            _live(asked, every)


def _live(asked: Top, every: float) -> None:
    """Update the screen until q or Ctrl-C is pressed."""
    from orchestrator.cli.keys import keys

    try:
        with keys() as pressed, _full_screen() as show:
            while True:
                now, looked_at = asked.look(), time.monotonic()
                while (since := time.monotonic() - looked_at) < every:
                    show(_text(now, since))
                    if pressed(min(_REDRAW_S, max(0.0, every - since))) in _QUIT:
                        return
    except KeyboardInterrupt:
        return


@contextmanager
def _full_screen() -> Iterator[Callable[[str], None]]:
    """Yield a function that shows a text on the whole terminal. The previous content is restored at the
    end.
    """

    def show(text: str) -> None:
        columns, rows = shutil.get_terminal_size((80, 24))
        print("\x1b[H", end="")
        for line in _fitting(text, columns, rows - 1):
            print(f"{ours(line)}\x1b[K")
        print("\x1b[J", end="", flush=True)

    print("\x1b[?1049h\x1b[?25l", end="", flush=True)
    try:
        yield show
    finally:
        print("\x1b[?25h\x1b[?1049l", end="", flush=True)


def _fitting(text: str, columns: int, rows: int) -> list[str]:
    """Wrap lines wider than `columns`; the last of `rows` lines says how many more there are."""
    lines = [part for line in text.splitlines() for part in _wrapped(line, columns)]
    if len(lines) <= rows:
        return lines
    shown = lines[: max(0, rows - 1)]
    return [*shown, f"… {counted(len(lines) - len(shown), 'more line')}"[:columns]]


def _wrapped(line: str, columns: int) -> list[str]:
    indent = line[: len(line) - len(line.lstrip())]
    return textwrap.wrap(line, columns, subsequent_indent=indent, drop_whitespace=True) or [""]


def _text(now: Now, since: float) -> str:
    from orchestrator.api import Project
    from orchestrator.report.top import top_text

    columns = shutil.get_terminal_size((80, 24)).columns
    up = Project.at().up_command
    return top_text(now.leases, now.paces, now.problems, up=up, columns=columns, since=since)
