"""Split a file's text into snippets: pieces of one language that run as one program."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from orchestrator.lint.markdown import blocks, groups
from orchestrator.lint.notebook import Unreadable, cells


@dataclass(frozen=True)
class Snippet:
    """Code of one language. `lines[i]` is the (cell, line) in the file of the code's line i + 1.

    `language` is python, shell, requirements, conda, pyproject, docker, or unreadable with the reason as
    code. `fragment`: an excerpt in a text, which may be incomplete. `indent` is added to columns.
    """

    path: str
    language: str
    code: str
    lines: tuple[tuple[int, int], ...]
    indent: int = 0
    fragment: bool = False

    def place(self, line: int) -> tuple[int, int]:
        """Return the (cell, line) in the file of a line of the code; the nearest one if it has none."""
        if not self.lines:
            return 0, 1
        return self.lines[min(max(line, 1), len(self.lines)) - 1]


_NAMES = (
    (re.compile(r".*\.pyw?$"), "python"),
    (re.compile(r".*\.ipynb$"), "notebook"),
    (re.compile(r".*\.(md|markdown)$"), "markdown"),
    (re.compile(r"pyproject\.toml$"), "pyproject"),
    (re.compile(r"uv\.lock$|pylock(\.[^.]+)?\.toml$|(.*[-_.])?requirements([-_.].*)?\.lock$"), "lock"),
    (re.compile(r"(.*[-_.])?(requirements|constraints)([-_.].*)?\.(txt|in)$"), "requirements"),
    (re.compile(r"environment([-_.].*)?\.ya?ml$"), "conda"),
    (re.compile(r"(.*\.)?dockerfile(\..*)?$|containerfile$"), "docker"),
    (re.compile(r".*\.(sh|bash)$"), "shell"),
)
_NO_UTF8 = re.compile("[\udc80-\udcff]")
"""Bytes that are not UTF-8, as "surrogateescape" reads them."""
_CODING = re.compile(r"(#.*\n)?[ \t\f]*#.*?coding[:=][ \t]*[-\w.]+")
_FOREIGN_CELL = re.compile(r"\s*%%(?!time|capture|timeit|prun|memit)")
_LANGUAGES = {
    **dict.fromkeys(("python", "py", "python3", "ipython", "pycon"), "python"),
    **dict.fromkeys(("bash", "sh", "shell", "console", "zsh", "shell-session"), "shell"),
    **dict.fromkeys(("dockerfile", "docker"), "docker"),
    "requirements": "requirements",
}


def language_of(path: str) -> str | None:
    """Return the language of a file by its name, None if there is nothing to check."""
    name = PurePosixPath(path).name.lower()
    if PurePosixPath(path).parent.name == "requirements" and name.endswith(".txt"):
        return "requirements"
    return next((language for pattern, language in _NAMES if pattern.fullmatch(name)), None)


def snippets(path: str, text: str) -> list[Snippet]:
    """Return the snippets of a file, in order. A file without a known suffix is treated as Python."""
    language = language_of(path) or "python"
    if _NO_UTF8.search(text):
        if language != "python" or not _CODING.match(text):
            return [Snippet(path, "unreadable", "it is not UTF-8, and names no other encoding", ((0, 1),))]
        text = _NO_UTF8.sub("\ufffd", text)
    if language == "markdown":
        return list(_of_markdown(path, text))
    if language == "notebook":
        return _of_notebook(path, text)
    lines = tuple((0, number) for number in range(1, text.count("\n") + 2))
    return [Snippet(path, language, text, lines)]


def _of_markdown(path: str, text: str) -> Iterable[Snippet]:
    for group in groups(blocks(text)):
        language = _LANGUAGES.get(group[0].language)
        if language:
            code = "\n".join(block.code for block in group)
            lines = tuple((0, block.line + n) for block in group for n in range(block.code.count("\n") + 1))
            yield Snippet(path, language, code, lines, indent=group[0].indent, fragment=True)


def _of_notebook(path: str, text: str) -> list[Snippet]:
    try:
        found = cells(text)
    except Unreadable as error:
        return [Snippet(path, "unreadable", str(error), ((0, 1),))]
    return [*_joined(path, "python", found), *_shell_lines(path, found)]


def _joined(path: str, language: str, found: Sequence[tuple[int, str]]) -> list[Snippet]:
    """Join all cells to one program that runs from top to bottom; cells of other languages become blank
    lines.
    """
    lines = tuple((number, n + 1) for number, code in found for n in range(code.count("\n") + 1))
    plain = ["\n" * code.count("\n") if _FOREIGN_CELL.match(code) else code for _, code in found]
    return [Snippet(path, language, "\n".join(plain), lines, fragment=True)]


def _shell_lines(path: str, found: Sequence[tuple[int, str]]) -> list[Snippet]:
    """Return `!pip install x` and `%pip install x` as shell lines."""
    shell: list[tuple[int, int, str]] = []
    for number, code in found:
        whole = re.match(r"\s*%%(bash|sh|!)", code) is not None
        continued = False
        for n, line in enumerate(code.split("\n"), 1):
            text = line.lstrip()
            if (whole and n > 1) or continued:
                shell.append((number, n, line))
            elif text.startswith("!") or re.match(r"%(pip|conda|sh|cd)\b", text):
                shell.append((number, n, text[1:]))
            else:
                continue
            continued = line.rstrip().endswith("\\")
    if not shell:
        return []
    lines = tuple((number, n) for number, n, _ in shell)
    return [Snippet(path, "shell", "\n".join(code for *_, code in shell), lines, indent=1, fragment=True)]
