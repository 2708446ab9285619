"""Ignore patterns, matched exactly as git matches them, byte for byte.

Git decides one path at a time, folders first, and never looks into a folder that it ignores. Pattern
libraries decide whole paths at once, and differ from git when a pattern re-includes something. So patterns
are translated here, following git's `dir.c` and `wildmatch.c`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

_SPECIAL = b"*?[\\"
_CLASSES = {
    b"alnum": b"0-9A-Za-z",
    b"alpha": b"A-Za-z",
    b"blank": rb" \t",
    b"cntrl": rb"\x00-\x1f\x7f",
    b"digit": b"0-9",
    b"graph": rb"\x21-\x7e",
    b"lower": b"a-z",
    b"print": rb"\x20-\x7e",
    b"punct": rb"\x21-\x2f\x3a-\x40\x5b-\x60\x7b-\x7e",
    b"space": rb" \t\n\r\x0b\x0c",
    b"upper": b"A-Z",
    b"xdigit": b"0-9A-Fa-f",
}


@dataclass(frozen=True)
class Pattern:
    """One line of an ignore file. `why` is "file:line: text"."""

    why: str
    negated: bool
    folders_only: bool
    by_name: bool
    expression: bytes
    """A regular expression for the name alone, or for the path below the pattern file's folder."""

    @cached_property
    def _compiled(self) -> re.Pattern[bytes]:
        return re.compile(self.expression, re.DOTALL)

    def matches(self, path: bytes, name: bytes, is_folder: bool) -> bool:
        if self.folders_only and not is_folder:
            return False
        return self._compiled.fullmatch(name if self.by_name else path) is not None


class PatternList:
    """The patterns of one file. The last pattern that matches decides."""

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self._patterns = tuple(reversed(patterns))
        self._by_name = _any(pattern for pattern in patterns if pattern.by_name)
        self._by_path = _any(pattern for pattern in patterns if not pattern.by_name)

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def decide(self, path: bytes, name: bytes, is_folder: bool) -> Pattern | None:
        """Return the pattern that decides about a path, relative to the file's folder; None if none does."""
        if not self._by_name.fullmatch(name) and not self._by_path.fullmatch(path):
            return None
        for pattern in self._patterns:
            if pattern.matches(path, name, is_folder):
                return pattern
        return None


def _any(patterns: Iterable[Pattern]) -> re.Pattern[bytes]:
    """Return an expression that matches if any of the patterns does, so that most paths need one match
    only.
    """
    return re.compile(b"|".join(pattern.expression for pattern in patterns) or rb"(?!)", re.DOTALL)


def parse(content: bytes, source: str) -> PatternList:
    """Return the patterns of an ignore file. `source`: its name in reasons."""
    lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    return PatternList(
        [
            pattern
            for number, line in enumerate(lines, 1)
            if (pattern := _parse_line(line.removesuffix(b"\r"), f"{source}:{number}"))
        ]
    )


def _parse_line(line: bytes, where: str) -> Pattern | None:
    if not line or line.startswith(b"#"):
        return None
    text = _without_trailing_spaces(line)
    shown = text.decode("utf-8", "replace")
    negated = text.startswith(b"!")
    text = text.removeprefix(b"!") if negated else text
    folders_only = text.endswith(b"/")
    text = text[:-1] if folders_only else text
    by_name = b"/" not in text
    expression = _translate(text, crosses=True) if by_name else _translate_path(text.removeprefix(b"/"))
    return Pattern(f"{where}: {shown}", negated, folders_only, by_name, expression)


def _without_trailing_spaces(line: bytes) -> bytes:
    end = at = 0
    while at < len(line):
        if line[at : at + 1] == b"\\":
            at += 1
            if at == len(line):
                return line
            end = at + 1
        elif line[at : at + 1] != b" ":
            end = at + 1
        at += 1
    return line[:end]


def _translate_path(text: bytes) -> bytes:
    # Git compares the part before the first special character literally and matches the rest for
    # itself, so that `**` right after it counts as one at the beginning.
    plain = next((at for at in range(len(text)) if text[at] in _SPECIAL), len(text))
    return re.escape(text[:plain]) + _translate(text[plain:], crosses=False)


def _translate(text: bytes, *, crosses: bool) -> bytes:
    """Translate a pattern to a regular expression. With `crosses`, wildcards match slashes too."""
    one = b"." if crosses else b"[^/]"
    out, at = b"", 0
    while at < len(text):
        byte = text[at : at + 1]
        if byte == b"*":
            stars = at
            while text[at : at + 1] == b"*":
                at += 1
            if crosses or at - stars == 1 or not _is_double(text, stars, at):
                out += one + b"*"
            elif text[at : at + 1] == b"/":
                out, at = out + b"(?:.*/)?", at + 1
            else:
                out += b".*"
            continue
        if byte == b"?":
            out, at = out + one, at + 1
        elif byte == b"[":
            found = _bracket(text, at, crosses)
            if found is None:
                return rb"(?!)"
            out, at = out + found[0], found[1]
        elif byte == b"\\":
            if at + 1 == len(text):
                return rb"(?!)"
            out, at = out + re.escape(text[at + 1 : at + 2]), at + 2
        else:
            out, at = out + re.escape(byte), at + 1
    return out


def _is_double(text: bytes, start: int, end: int) -> bool:
    """Return whether the stars from `start` to `end` form a complete part between slashes."""
    before = start == 0 or text[start - 1 : start] == b"/"
    after = end == len(text) or text[end : end + 1] == b"/" or text[end : end + 2] == b"\\/"
    return before and after


def _bracket(text: bytes, at: int, crosses: bool) -> tuple[bytes, int] | None:
    """Return the expression of the set that begins at `at`, and where it ends; None if it can never match."""
    at += 1
    negated = text[at : at + 1] in (b"!", b"^")
    at += negated
    members, previous, first = b"", b"", True
    while True:
        byte = text[at : at + 1]
        if not byte:
            return None
        if byte == b"]" and not first:
            break
        first = False
        if byte == b"\\":
            at += 1
            byte = text[at : at + 1]
            if not byte:
                return None
            members, previous = members + _member(byte), byte
        elif byte == b"-" and previous and text[at + 1 : at + 2] not in (b"", b"]"):
            at += 1
            last = text[at : at + 1]
            if last == b"\\":
                at += 1
                last = text[at : at + 1]
                if not last:
                    return None
            if previous <= last:
                members += _member(previous) + b"-" + _member(last)
            previous = b""
        elif byte == b"[" and text[at + 1 : at + 2] == b":":
            end = text.find(b"]", at + 2)
            if end < 0:
                return None
            if end - 1 < at + 2 or text[end - 1 : end] != b":":
                members, previous = members + _member(byte), byte
            else:
                known = _CLASSES.get(text[at + 2 : end - 1])
                if known is None:
                    return None
                members, previous, at = members + known, b"", end
        else:
            members, previous = members + _member(byte), byte
        at += 1
    no_slash = b"" if crosses else b"(?!/)"
    if not members:
        return (no_slash + b"." if negated else rb"(?!)"), at + 1
    return no_slash + b"[" + (b"^" if negated else b"") + members + b"]", at + 1


def _member(byte: bytes) -> bytes:
    return b"\\x%02x" % byte[0]
