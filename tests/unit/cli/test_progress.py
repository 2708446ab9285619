"""What progress prints: a moving line on a terminal, lines elsewhere."""

from __future__ import annotations

import io

from orchestrator.cli.progress import Lines, Moving
from orchestrator.model.progress import doing


def test_what_is_done_is_drawn_on_a_terminal_and_erased() -> None:
    stream = io.StringIO()
    with doing(Moving(stream), "Connecting to m-1"):
        assert stream.getvalue() == "\r\x1b[K  Connecting to m-1 …"
    assert stream.getvalue().endswith("…\r\x1b[K")


def test_a_step_that_is_said_meanwhile_replaces_it() -> None:
    stream = io.StringIO()
    progress = Moving(stream)
    with doing(progress, "Comparing code and data"):
        progress.say("Note: one")
    assert "…\r\x1b[KNote: one\n" in stream.getvalue()


def test_elsewhere_nothing_is_printed_of_it() -> None:
    stream = io.StringIO()
    with doing(Lines(stream), "Connecting to m-1"):
        Lines(stream).transfer("code", 5, 5)
    assert stream.getvalue() == "  code: 5 B\n"


def test_control_sequences_in_a_name_are_not_drawn() -> None:
    stream = io.StringIO()
    with doing(Moving(stream), "Connecting to \x1b]0;title\x07m"):
        assert "\x1b]" not in stream.getvalue()
