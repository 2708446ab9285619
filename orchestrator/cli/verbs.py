"""The list of verbs in `orch --help`: each with its whole first sentence, wrapped and never cut."""

from __future__ import annotations

import inspect
from typing import Any

import typer.core


class Verbs(typer.core.TyperGroup):
    """A group whose help does not shorten what its commands say of themselves."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        commands = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        rows = [(name, first_sentence(one.help or "")) for name, one in commands if one and not one.hidden]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


def first_sentence(text: str) -> str:
    """The first sentence of a docstring, on one line."""
    paragraph = " ".join(inspect.cleandoc(text).partition("\n\n")[0].split())
    return paragraph.partition(". ")[0].rstrip(".") + "." if paragraph else ""
