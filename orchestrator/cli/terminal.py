"""Filter output for the user's terminal: keep text and colours, remove other control sequences."""

from __future__ import annotations

import codecs
import re

from orchestrator.model.plain import plain

_RESET = "\x1b[0m"
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
_BEGUN = re.compile(
    "(?:\x1b(?:\\[[0-?]*[ -/]*|[\\]PX^_][^\x07\x1b\n]*(?:\x1b)?|[ -/]*)?|\x9b[0-?]*[ -/]*)\\Z"
)
_STRING = re.compile("\x1b[\\]PX^_][^\x07\x1b\n]*\x1b?\\Z")
_LONGEST = 4096
"""Longest unfinished control sequence that is buffered. Contents of string sequences are dropped."""
_MOST_COLOURS = 16


class Shown:
    """Filter a job's output piece by piece; a control sequence may span two pieces.

    \\n, \\r, \\t and colours (SGR) pass. Sequences that move the cursor, set a title or the clipboard or
    query the terminal are removed, as are bytes that are not UTF-8. Each piece ends with colours reset.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._waiting = ""
        self._colours: list[str] = []

    def piece(self, data: bytes) -> bytes:
        """Filter the next piece."""
        text = self._waiting + self._decoder.decode(data)
        begun = _STRING.search(text) or _BEGUN.search(text, max(0, len(text) - _LONGEST))
        self._waiting = _shortened(begun.group()) if begun else ""
        text = text[: begun.start()] if begun else text
        if not text:
            return b""
        lines = (plain(line, colours=True) for line in text.split("\r"))
        return self._coloured("\r".join(lines)).encode()

    def _coloured(self, text: str) -> str:
        before = "".join(self._colours)
        for code in _COLOUR.findall(text):
            self._colours = [] if code in (_RESET, "\x1b[m") else [*self._colours, code][-_MOST_COLOURS:]
        return f"{before}{text}{_RESET if self._colours else ''}"


def _shortened(begun: str) -> str:
    """Drop the contents of an unfinished string sequence; they are never shown."""
    if not _STRING.match(begun):
        return begun
    return begun[:2] + ("\x1b" if len(begun) > 2 and begun.endswith("\x1b") else "")


def ours(text: str) -> str:
    """Filter a message of orch, which may quote a machine's output. Colours are reset at its end."""
    shown = plain(text, colours=True)
    return f"{shown}{_RESET}" if _COLOUR.search(shown) and not shown.endswith(_RESET) else shown
