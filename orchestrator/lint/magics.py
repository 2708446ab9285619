"""Replace IPython's own syntax in notebook cells (magics, shell lines, help) by statements without effect."""

from __future__ import annotations

import re
from collections.abc import Iterator

_TOKEN = re.compile(
    r"\"\"\"|'''|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|#.*|[([{]|[)\]}]",
)
_HELP = re.compile(r"\?{1,2}[\w.]+\s*$|[\w.]+\?{1,2}\s*$")
_ASSIGNED = re.compile(r"(\s*[A-Za-z_][\w.,\s]*=\s*)(!|%(?=[A-Za-z]))")


def without_magics(lines: list[str]) -> Iterator[str]:
    """Return the lines, with those of IPython as `pass` or `x = None` at the same indent.

    Lines inside brackets or multi-line strings are unchanged: `%` is an operator or a character there.
    """
    state = _State()
    continued = False
    for line in lines:
        if continued:
            continued = line.rstrip().endswith("\\")
            yield ""
            continue
        plain = _plain(line) if state.at_statement else line
        continued = plain != line and line.rstrip().endswith("\\")
        state.read(plain)
        yield plain


def _plain(line: str) -> str:
    text = line.lstrip()
    if text.startswith(("%", "!")) or _HELP.match(text):
        return line[: len(line) - len(text)] + "pass"
    found = _ASSIGNED.match(line)
    return f"{found[1]}None" if found else line


class _State:
    """The state at the end of a line: the number of open brackets, and the open multi-line string."""

    def __init__(self) -> None:
        self._quote = ""
        self._depth = 0
        self._joined = False

    @property
    def at_statement(self) -> bool:
        return not self._quote and not self._depth and not self._joined

    def read(self, line: str) -> None:
        at = 0
        while at < len(line):
            if self._quote:
                end = line.find(self._quote, at)
                if end < 0:
                    return
                at, self._quote = end + 3, ""
                continue
            found = _TOKEN.search(line, at)
            if found is None:
                break
            at = found.end()
            self._take(found[0])
        self._joined = line.endswith("\\")

    def _take(self, token: str) -> None:
        if token in ('"""', "'''"):
            self._quote = token
        elif token in "([{":
            self._depth += 1
        elif token in ")]}":
            self._depth = max(self._depth - 1, 0)
