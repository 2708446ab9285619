"""The code blocks of the Markdown files beside this one, by their headings, and what lint finds there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from orchestrator.lint import Checked, check
from orchestrator.lint.markdown import blocks

FOLDER = Path(__file__).parent
_FILES = {
    "python": "train.py",
    "requirements": "requirements.txt",
    "bash": "run.sh",
    "dockerfile": "Dockerfile",
    "yaml": "environment.yml",
    "toml": "pyproject.toml",
}
_MARK = "# here"


@dataclass(frozen=True)
class Block:
    """One block; `line` is where its code begins in `file`."""

    file: str
    heading: str
    language: str
    code: str
    line: int

    def __str__(self) -> str:
        return f"{self.heading}, {self.file}:{self.line}"

    @property
    def marked(self) -> list[int]:
        """The lines (from 1) on which a finding is expected."""
        return [number for number, text in enumerate(self.code.split("\n"), 1) if _MARK in text]

    def lines(self, rule: str) -> set[int]:
        """Where a rule is met in the block, as a file of its own or as an example in a text."""
        alone = {each.line for each in self.checked().findings if each.rule == rule}
        return alone or {each.line - 1 for each in self.shown().findings if each.rule == rule}

    def checked(self) -> Checked:
        """What is found in the block as a file of its own."""
        return check({_FILES[self.language]: self.code})

    def shown(self) -> Checked:
        """What is found in the block as it stands in a text."""
        return check({"text.md": f"```{self.language}\n{self.code}\n```\n"})


def blocks_of(file: str) -> list[Block]:
    """Every block of a Markdown file of this folder."""
    return list(_blocks(file, (FOLDER / file).read_text(encoding="utf-8")))


def _blocks(file: str, text: str) -> Iterator[Block]:
    headings = {number: line[3:] for number, line in enumerate(text.split("\n"), 1) if line.startswith("## ")}
    for block in blocks(text):
        above = max(number for number in headings if number < block.line)
        yield Block(file, headings[above], block.language, block.code, block.line)
