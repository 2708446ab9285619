"""The classes of verbs: --quiet and --verbose, the log file, and errors for surplus arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core

from orchestrator.cli.command_log import CommandLog, Loudness, logged


class Command(typer.core.TyperCommand):
    """A command with `--quiet`, `--verbose` and a log file."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.params += _loudness_options()

    def invoke(self, ctx: Any) -> Any:
        log = CommandLog(str(self.name), ctx.params, ctx.meta.get(_META, Loudness.NORMAL))
        with logged(log):
            return super().invoke(ctx)


_META = "orch.loudness"


def _setting(which: Loudness) -> Callable[[typer.Context, bool], None]:
    """Return the callback that sets how much a command prints; the last option on the command line counts."""

    def keep(ctx: typer.Context, given: bool) -> None:
        if given:
            ctx.meta[_META] = which

    return keep


def _option(which: Loudness, short: str, text: str) -> Any:
    return typer.Option(
        f"--{which.value}", short, callback=_setting(which), expose_value=False, show_default=False, help=text
    )


_Quiet = Annotated[bool, _option(Loudness.QUIET, "-q", "Print no progress, only notices and results.")]
_Verbose = Annotated[
    bool, _option(Loudness.VERBOSE, "-v", "Print details too: durations, commands on machines, retries.")
]


def _with_loudness(quiet: _Quiet = False, verbose: _Verbose = False) -> None:
    """Declare --quiet and --verbose, which every verb has."""


@cache
def _loudness_options() -> list[Any]:
    """Return the options as typer builds them, which differs between its versions."""
    app = typer.Typer(add_completion=False)
    app.command()(_with_loudness)
    return list(typer.main.get_command(app).params)


class Verb(Command):
    """A command whose error for a surplus argument suggests the option that was probably meant."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.allow_extra_args = True
        surplus = super().parse_args(ctx, args)
        if surplus and not ctx.resilient_parsing:
            ctx.fail(refusal_of(self, surplus, ctx.params.get("lease")))
        return surplus


def refusal_of(verb: Any, surplus: Sequence[str], lease: str | None = None) -> str:
    """The error for surplus arguments, with a suggestion guessed from the first one.

    `lease`: that the command line names.
    """
    from orchestrator.api import shown_path
    from orchestrator.model.paths import is_there

    word, name = shown_path(Path(surplus[0])), f"`orch {verb.name}`"
    if any(each.param_type_name == "argument" for each in verb.params):
        return f"{name} got an unexpected extra argument: {word!r}."
    if word.endswith((".yaml", ".yml")) or is_there(Path(surplus[0])):
        return f"{name} takes no profile: {_instead(verb.name, surplus[0])}"
    options = {option for each in verb.params for option in each.opts}
    if "=" in word and "--set" in options:
        from orchestrator.api import setting_meant

        return f"{name} takes no argument {word!r}. {setting_meant(word, lease)}"
    wanted = () if "=" in word else ("--run-id", "--lease")
    meant = " or ".join(f"{option} {word}" for option in wanted if option in options)
    advice = f" Did you mean {meant}?" if meant else ""
    return f"{name} takes no argument {word!r}.{advice}"


def _instead(verb: str, word: str) -> str:
    from orchestrator.api import no_such_file, shown_path
    from orchestrator.model.paths import is_there

    if verb != "train":
        return "it works on existing leases."
    uses = "it trains on the machine that `orch up PROFILE` created."
    if is_there(Path(word)):
        return f"{uses} Did you mean orch up {word}, or orch run {word}, which does both?"
    path = Path(word)
    return f"{uses} {shown_path(path)}: {no_such_file(path)}"
