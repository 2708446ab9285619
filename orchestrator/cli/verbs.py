"""How verbs appear: the list in `orch --help`, uncut, and the refusal of a word that a verb does not take."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
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


class Verb(typer.core.TyperCommand):
    """A command that names the option that was probably meant by a word it does not take."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.allow_extra_args = True
        surplus = super().parse_args(ctx, args)
        if surplus and not ctx.resilient_parsing:
            ctx.fail(refusal_of(self, surplus))
        return surplus


def refusal_of(verb: Any, surplus: Sequence[str]) -> str:
    """Say what the first surplus word was probably meant for, by its form and what the verb takes."""
    from orchestrator.api import shown_path
    from orchestrator.model.paths import is_there

    word, name = shown_path(Path(surplus[0])), f"`orch {verb.name}`"
    if any(each.param_type_name == "argument" for each in verb.params):
        return f"{name} was given {word!r} too, which is one word more than it takes."
    if word.endswith((".yaml", ".yml")) or is_there(Path(surplus[0])):
        return f"{name} takes no profile: {_instead(verb.name, surplus[0])}"
    options = {option for each in verb.params for option in each.opts}
    wanted = ("--set",) if "=" in word else ("--run-id", "--lease")
    meant = " or ".join(f"{option} {word}" for option in wanted if option in options)
    advice = f" Did you mean {meant}?" if meant else ""
    return f"{name} takes no word like {word!r}.{advice}"


def _instead(verb: str, word: str) -> str:
    from orchestrator.api import no_such_file, shown_path
    from orchestrator.model.paths import is_there

    if verb != "train":
        return "it acts on what was leased before, from this folder or by you."
    uses = "it trains on the machine that `orch up PROFILE` made."
    if is_there(Path(word)):
        return f"{uses} Did you mean orch up {word}, or orch run {word}, which does both?"
    path = Path(word)
    return f"{uses} And {shown_path(path)}: {no_such_file(path)}"
