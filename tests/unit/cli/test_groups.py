"""Groups build a command when it is asked for: typer's work on a command takes longer than its import."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

from orchestrator.cli.groups import App
from orchestrator.cli.verbs import Command

built: list[str] = []


class Noted(Command):
    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        built.append(str(self.name))


def some_app() -> App:
    app, below = App(name="some"), App(name="below", help="Verbs of its own. More.")
    app.callback()(lambda: None)

    @app.command(cls=Noted)
    def first_one() -> None:
        """Do one thing.

        And say more of it.
        """
        print("first")

    @app.command("2nd", cls=Noted)
    def second(much: int = 1) -> None:
        print("second", much)

    @app.command(cls=Noted, hidden=True)
    def unnamed() -> None:
        """Not listed."""

    below.command(cls=Noted)(first_one)
    app.add_typer(below)
    return app


def said(*words: str) -> str:
    built.clear()
    return CliRunner().invoke(some_app(), words).output


@pytest.mark.parametrize(
    ("words", "commands"),
    [
        (["first-one"], ["first-one"]),
        (["2nd", "--much", "3"], ["2nd"]),
        (["2nd", "--help"], ["2nd"]),
        (["below", "first-one"], ["first-one"]),
        (["--help"], []),
        (["below", "--help"], []),
        (["2md"], []),
    ],
    ids=lambda value: " ".join(value) or "none",
)
def test_only_the_named_command_is_built(words: list[str], commands: list[str]) -> None:
    said(*words)
    assert built == commands


def test_a_command_does_what_it_does_when_all_are_built() -> None:
    assert said("2nd", "--much", "3") == "second 3\n"
    assert said("below", "first-one") == "first\n"
    assert "Did you mean '2nd'" in said("2md")


def test_help_lists_the_first_sentences_of_all_but_hidden_commands() -> None:
    listed = said("--help").partition("Commands:\n")[2].splitlines()
    assert [line.strip() for line in listed] == [
        "first-one  Do one thing.",
        "2nd",
        "below      Verbs of its own.",
    ]
