"""Make a machine's text safe to show: remove what moves the cursor, sets titles, or hides text."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_CODE = re.compile(
    "\x1b(?:"
    r"\[[0-?]*[ -/]*[@-~]"  # CSI
    "|[\\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\\\)?"  # OSC, DCS, SOS, PM, APC: at most to the end of the line
    r"|[ -/]*[0-~]"  # two characters and more
    ")?"
    "|\x9b[0-?]*[ -/]*[@-~]"
)
_COLOUR = re.compile(r"\x1b\[[0-9;:]{0,40}m\Z")
_DIRECTIONS = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_CONTROLS = (*(code for code in range(0x20) if chr(code) not in "\t\n"), *range(0x7F, 0xA0))
_UNSEEN = dict.fromkeys((*_CONTROLS, *_DIRECTIONS, *range(0xD800, 0xE000)))

_WORDS = 500


def plain(text: str, *, colours: bool = False) -> str:
    """Return `text` without escape sequences, changes of direction, and control characters other than \\n and
    \\t.

    `colours` keeps the sequences that choose colours and weights (SGR).
    """
    if text.isascii() and text.isprintable():
        return text
    if not colours:
        return _CODE.sub("", text).translate(_UNSEEN)
    kept: list[str] = []
    end = 0
    for code in _CODE.finditer(text):
        kept.append(text[end : code.start()].translate(_UNSEEN))
        if _COLOUR.match(code.group()):
            kept.append(code.group())
        end = code.end()
    kept.append(text[end:].translate(_UNSEEN))
    return "".join(kept)


def last_words(said: bytes, most: int = _WORDS) -> str:
    """Return the end of a program's output, on one line of at most `most` characters; "" if there is none."""
    text = said[-8 * most :].decode("utf-8", "replace")
    return " ".join(plain(text).split())[-most:]


def moment(seconds: float) -> str:
    """Format Unix seconds as "2026-11-22 18:56 UTC"."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
