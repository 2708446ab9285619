"""Groups of commands: the list in `orch --help`, and commands that are built only when they are used.

Building a command takes time, because typer evaluates its annotations.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import typer
import typer.core
from typer.main import get_command_from_info, get_command_name
from typer.models import CommandInfo

_Function = TypeVar("_Function", bound=Callable[..., Any])

SECTIONS: Mapping[str, tuple[str, ...]] = {
    "Prepare": ("init", "lock", "doctor", "setup", "lint", "size", "skipped"),
    "Machines": (
        "plan",
        "up",
        "status",
        "top",
        "ssh",
        "forward",
        "ssh-config",
        "down",
        "gc",
        "costs",
        "image",
    ),
    "Runs": (
        "train",
        "run",
        "sweep",
        "watch",
        "logs",
        "cancel",
        "pull",
        "runs",
        "report",
        "tensorboard",
        "models",
        "rollback",
    ),
    "Reproduce and measure": ("record", "compare", "rerun", "resume-check", "profile"),
    "Reference": ("catalog", "explain", "schema"),
}
"""Sections of `orch --help`, in order; other verbs are listed under "Commands"."""


class App(typer.Typer):
    """A Typer that registers commands by name, and builds them only when they are used."""

    def __init__(self, **settings: Any) -> None:
        registered: dict[str, CommandInfo] = {}

        class Group(Verbs):
            def __init__(self, commands: Mapping[str, Any], **settings: Any) -> None:
                super().__init__(Commands({**registered, **commands}), **settings)

        super().__init__(cls=Group, no_args_is_help=True, rich_markup_mode=None, **settings)
        self._registered = registered

    def command(self, name: str | None = None, **settings: Any) -> Callable[[_Function], _Function]:
        """Register a function as a command. Its docstring is the help."""

        def register(function: _Function) -> _Function:
            info = CommandInfo(name, callback=function, help=function.__doc__, **settings)
            self._registered[name or get_command_name(function.__name__)] = info
            return function

        return register


class Commands(Mapping[str, Any]):
    """The commands of a group by name. A registered command is built when it is read."""

    def __init__(self, known: Mapping[str, Any]) -> None:
        self._known = dict(known)

    def __getitem__(self, name: str) -> Any:
        found = self._known[name]
        if isinstance(found, CommandInfo):
            found = get_command_from_info(found, pretty_exceptions_short=True, rich_markup_mode=None)
            self._known[name] = found
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def helps(self) -> dict[str, str]:
        """Return the help of each command that is not hidden. Builds none."""
        return {name: each.help or "" for name, each in self._known.items() if not each.hidden}


class Verbs(typer.core.TyperGroup):
    """A group whose help lists its commands in SECTIONS, with the first sentence of each, never truncated."""

    def __init__(self, commands: Commands, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = commands

    def list_commands(self, ctx: Any) -> list[str]:
        del ctx
        return list(self.commands)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        del ctx
        left = {name: first_sentence(text) for name, text in self.commands.helps().items()}
        width = max(map(len, left), default=0)
        for title, names in {**SECTIONS, "Commands": tuple(left)}.items():
            rows = [(name.ljust(width), left.pop(name)) for name in names if name in left]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def first_sentence(text: str) -> str:
    """The first sentence of a docstring, on one line."""
    paragraph = " ".join(inspect.cleandoc(text).partition("\n\n")[0].split())
    return paragraph.partition(". ")[0].rstrip(".") + "." if paragraph else ""
