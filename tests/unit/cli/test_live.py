"""The live view of a run: the job's output as it is without it, and one line below."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.cli.live import Live
from orchestrator.cli.startup_lines import Folded
from orchestrator.cli.terminal import Shown
from orchestrator.model.progress import Pace, Watching
from tests.unit.cli.terminals import Terminal

PACE = Pace(seconds=75.0, steps=30, all_steps=100, epoch=3, epochs=10, steps_per_s=112.3, price=1.2)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    made = Terminal()
    yield made
    made.close()


def live(terminal: Terminal) -> Live:
    return Live(terminal.stream, terminal.stream)


def plainly(pieces: Sequence[bytes]) -> list[str]:
    """What a terminal shows of the same output without the line."""
    terminal, shown = Terminal(), Shown()
    for piece in pieces:
        terminal.stream.buffer.write(shown.piece(piece))
    terminal.stream.flush()
    terminal.close()
    return terminal.text()


def test_the_line_is_in_the_last_row_and_goes_with_the_run(terminal: Terminal) -> None:
    view = live(terminal)
    assert isinstance(view, Watching)
    view.say("before")
    view.pace(PACE)
    for number in range(40):
        view.output(f"line {number}\n".encode())
    view.pace(None)
    view.say("after")
    terminal.close()
    line = re.compile(r"1:\d\d · epoch 3/10 · 112 steps/s · \$0\.02\d\d")
    assert any(line.fullmatch(row) for row in terminal.seen)
    assert terminal.text() == ["before", *(f"line {number}" for number in range(40)), "after"]


TEXTS = st.text(st.sampled_from("ab é\r\n\t"), max_size=30).map(str.encode)


@settings(max_examples=40, deadline=None)
@given(st.lists(TEXTS, max_size=25), st.lists(st.booleans(), min_size=25, max_size=25))
def test_output_is_shown_as_without_the_line(pieces: list[bytes], draws: list[bool]) -> None:
    """Unfinished lines and carriage returns included, whenever the line is drawn."""
    terminal = Terminal()
    view = live(terminal)
    for piece, draw in zip(pieces, draws, strict=False):
        if draw:
            view.pace(PACE)
        view.output(piece)
    view.end()
    terminal.close()
    assert terminal.text() == plainly(pieces)


def test_a_terminal_that_changes_its_size(terminal: Terminal) -> None:
    view = live(terminal)
    view.pace(PACE)
    view.output(b"one\n")
    for columns, rows in ((40, 20), (100, 3), (100, 8)):
        terminal.resize(columns, rows)
        view.pace(PACE)
    view.output(b"two\n")
    view.end()
    view.say("three")
    terminal.close()
    assert terminal.text()[-2:] == ["two", "three"] and terminal.last_row in ("", "three")
    assert terminal.screen.margins is None


STARTS = b"""WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
I0000 00:00:1795776265.125400     507 port.cc:153] oneDNN custom operations are on.
2026-11-27 10:44:24.125400: I tensorflow/core/platform/cpu_feature_guard.cc:210] This TensorFlow binary is
To enable the following instructions: AVX2 FMA, in other operations, rebuild TensorFlow.
E0000 00:00:1795776265.125400     507 cuda_dnn.cc:8579] Unable to register cuDNN factory: it is registered
"""


@pytest.mark.parametrize("step", [1, 7, 1 << 20])
def test_start_up_lines_are_folded_in_whatever_pieces(step: int) -> None:
    data = STARTS + b"Epoch 1/2\n2026-11-27 is the day\n" + STARTS[:87] + b"loss: 0.1"
    folded = Folded()
    shown = b"".join(folded.piece(data[at : at + step]) for at in range(0, len(data), step)) + folded.rest()
    first, *others = shown.splitlines()
    assert first == b"(5 start-up lines of TensorFlow: see the log)"
    assert others == [
        b"Epoch 1/2", b"2026-11-27 is the day", b"(1 start-up line of TensorFlow: see the log)", b"loss: 0.1",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [
        b"2026-11-27 10:44:24.125400: E external/local_xla/cuda_driver.cc:152] failed call to cuInit\n",
        b"W0000 00:00:1795776265.125400     507 gpu_device.cc:2344] Cannot dlopen some GPU libraries.\n",
        b"I0000 00:00:1795776265.125400  507 gpu_device.cc:2022] Created device /GPU:0 with 13 GB\n",
        b"To enable it, write train.augment: true\n",
    ],
)
def test_what_a_user_needs_stays(line: bytes) -> None:
    assert Folded().piece(line) == line


def test_an_unfinished_line_is_not_held_back() -> None:
    folded = Folded()
    assert folded.piece(b"Training") == b"Training" and folded.piece(b" 10 %") == b" 10 %"
