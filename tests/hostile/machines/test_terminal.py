"""What a machine prints cannot act on the terminal; what goes to a file or a pipe stays as it was."""

from __future__ import annotations

import ast
import os
import pty
import re
import select
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.cli.output import tell
from orchestrator.cli.progress import Lines
from orchestrator.cli.terminal import Shown, ours
from orchestrator.errors import HostError
from orchestrator.model.plain import last_words, plain

SGR = re.compile(r"\x1b\[[0-9;:]*m")

ATTACKS = {
    "title": b"\x1b]0;owned\x07",
    "title, ended otherwise": b"\x1b]2;owned\x1b\\",
    "clipboard": b"\x1b]52;c;cm0gLXJmIH4=\x07",
    "link": b"\x1b]8;;http://evil\x1b\\click\x1b]8;;\x1b\\",
    "clear": b"\x1b[2J\x1b[H",
    "up, over what was said": b"\x1b[5A\x1b[K",
    "an answer typed for the user": b"\x1b[6n\x1b[c\x1b[>c",
    "settings": b"\x1b[?1049h\x1b[?25l\x1b[4h",
    "device control": b"\x1bP$q q\x1b\\",
    "reset": b"\x1bc",
    "character sets": b"\x1b(0\x0e",
    "one byte codes": b"\x9b2J\x9d0;owned\x9c",
    "one byte codes in UTF-8": "\x9b2J\x9d0;owned\x9c".encode(),
    "unfinished": b"\x1b]0;owned",
    "bells and backspaces": b"\x07\x08\x08\x7f\x00\x0b\x0c",
    "a sequence in a sequence": b"\x1b]0;\x1b[2J\x07\x1b\x1b[2J",
    "parameters without end": b"\x1b[" + b"1;" * 10_000 + b"H",
    "hidden": b"\x1b[8m",
    "no UTF-8": b"\xff\xfe\xc3\x28",
}


def acts(shown: bytes) -> set[str]:
    """The characters that would act on a terminal, colours aside."""
    text = SGR.sub("", shown.decode())
    return {char for char in text if (ord(char) < 32 and char not in "\n\r\t") or 127 <= ord(char) < 160}


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("step", [1, 3, 1 << 20])
def test_output_of_a_job_cannot_act_on_the_terminal(attack: str, step: int) -> None:
    data = b"before\n" + ATTACKS[attack] + b"\nafter\n"
    shown = Shown()
    out = b"".join(shown.piece(data[at : at + step]) for at in range(0, len(data), step))
    assert not acts(out)
    plain_text = SGR.sub("", out.decode())
    assert plain_text.startswith("before\n") and plain_text.endswith("\nafter\n")


@settings(max_examples=150)
@given(st.lists(st.sampled_from([*ATTACKS.values(), b"x", b"\n", b"\x1b", b"["]) | st.binary(max_size=5)))
def test_whatever_is_printed_in_whatever_pieces(pieces: Sequence[bytes]) -> None:
    shown = Shown()
    assert not acts(b"".join(map(shown.piece, pieces)))


IMAGE = b"\x1b]1337;File=inline=1:" + b"QUJD" * 50_000 + b"\x07"
LONG = [IMAGE, b"\x1bP" + b"q" * 9000 + b"\x1b\\", b"\x1b]0;" + b"t" * 9000 + b"\n", b"\x1b[31mred\x1b[0m"]
PIECES = [attack for name, attack in ATTACKS.items() if name != "parameters without end"]


@settings(max_examples=100)
@given(
    st.lists(st.sampled_from(range(len(LONG) + len(PIECES))), max_size=6),
    st.sampled_from([97, 4096, 1 << 16]),
)
def test_a_border_between_blocks_shows_nothing_more(which: Sequence[int], block: int) -> None:
    """Also of a sequence that is longer than a block, such as an image."""
    data = b"text\n".join([*LONG, *PIECES][number] for number in which) + b"\n"
    blocks = Shown()
    shown = b"".join(blocks.piece(data[at : at + block]) for at in range(0, len(data), block))
    assert SGR.sub("", shown.decode()) == SGR.sub("", Shown().piece(data).decode())


@settings(max_examples=50)
@given(st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]) | st.sampled_from("\n\r\t"), max_size=50))
def test_ordinary_text_and_progress_bars_stay(text: str) -> None:
    shown = Shown()
    assert b"".join(shown.piece(bytes([byte])) for byte in text.encode()).decode() == text


def test_colours_stay_and_do_not_leak_into_what_follows() -> None:
    shown = Shown()
    assert shown.piece(b"\x1b[1;32mok") == b"\x1b[1;32mok\x1b[0m"
    assert shown.piece(b" still\x1b[0m plain") == b"\x1b[1;32m still\x1b[0m plain"
    assert shown.piece(b"more") == b"more"
    assert ours("\x1b[8mhidden") == "\x1b[8mhidden\x1b[0m"


@settings(max_examples=150)
@given(st.text() | st.sampled_from([attack.decode(errors="replace") for attack in ATTACKS.values()]))
def test_a_message_that_quotes_a_machine(text: str) -> None:
    assert not acts(ours(text).encode()) and not acts(plain(text).encode())
    assert "\x1b" not in plain(text) and not set(plain(text)) & set("\u202e\u2066\r")
    assert len(last_words(text.encode("utf-8", "replace") * 1000, 80)) <= 80


def test_errors_and_progress_are_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "x".join(attack.decode(errors="replace") for attack in ATTACKS.values())
    tell(HostError(hostile, exists=hostile, next_command=hostile), as_json=False)
    Lines(sys.stderr).say(hostile)
    tell(HostError(hostile), as_json=True)
    said = capsys.readouterr()
    assert not acts(said.err.encode()) and not acts(said.out.encode())


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with the log of a run that came home, full of attacks."""
    log = tmp_path / "runs" / "r1" / "output.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(b"\n".join(ATTACKS.values()) + b"\nend of it\n")
    return tmp_path


def test_logs_on_a_terminal_and_into_a_file(project: Path) -> None:
    argv = [sys.executable, "-m", "orchestrator", "logs", "r1"]
    piped = subprocess.run(argv, cwd=project, capture_output=True, check=True).stdout
    assert piped == (project / "runs/r1/output.log").read_bytes()
    controller, terminal = pty.openpty()
    with subprocess.Popen(argv, cwd=project, stdout=terminal, stderr=terminal, stdin=terminal) as process:
        os.close(terminal)
        seen = _all_of(controller)
    assert process.returncode == 0
    assert not acts(seen) and b"end of it" in seen


def _all_of(terminal: int) -> bytes:
    seen = b""
    try:
        while select.select([terminal], [], [], 30)[0] and (data := os.read(terminal, 1 << 16)):
            seen += data
    except OSError:  # the other end was closed
        pass
    os.close(terminal)
    return seen


def test_whatever_the_command_line_prints_is_made_harmless() -> None:
    """Names of machines, labels, files and runs come from others."""
    for path in sorted((Path(__file__).parents[3] / "orchestrator" / "cli").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print" and node.args:
                assert harmless(node.args[0]), f"{path.name}:{node.lineno} prints without terminal.ours"


HARMLESS = {"ours", "dumps", "len"}
OUR_WORDS = {"_NOT_ASKED", "_INTERRUPTED", "__version__"}


def harmless(value: ast.AST) -> bool:
    if isinstance(value, ast.JoinedStr):
        return all(harmless(each) for each in value.values)
    if isinstance(value, ast.FormattedValue):
        return harmless(value.value)
    if isinstance(value, ast.Call):
        name = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
        return name in HARMLESS
    return isinstance(value, ast.Constant) or (isinstance(value, ast.Name) and value.id in OUR_WORDS)
