"""Progress that keeps what was said."""

from __future__ import annotations

from orchestrator.model import Silent


class Said(Silent):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)

    def about(self, word: str) -> list[str]:
        return [line for line in self.lines if word in line]
