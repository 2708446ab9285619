"""The names by which sentences call the two sides of a comparison."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SideNames:
    """Names of A and B: as the subject of a sentence, of what is in a side, of what belongs to it, and of
    what is brought to it."""

    a: str
    b: str
    in_a: str
    in_b: str
    of_a: str
    of_b: str
    to_a: str
    to_b: str

    def subject(self, side: str) -> str:
        """The run of `side` ("A" or "B"), as the subject of a sentence."""
        return self.a if side == "A" else self.b

    def inside(self, side: str) -> str:
        """Where something of `side` is: "in A", "here"."""
        return self.in_a if side == "A" else self.in_b

    def of(self, side: str) -> str:
        """Whose something of `side` is: "of A", "here"."""
        return self.of_a if side == "A" else self.of_b

    def to(self, side: str) -> str:
        """Where something is brought: "to A", "here"."""
        return self.to_a if side == "A" else self.to_b


LETTERS = SideNames("A", "B", "in A", "in B", "of A", "of B", "to A", "to B")
HERE_AND_THERE = SideNames("the run here", "the run there", "here", "there", "here", "there", "here", "there")
TWO_RUNS = SideNames(
    "one run",
    "the other",
    "in one run",
    "in the other",
    "of one run",
    "of the other",
    "to one run",
    "to the other",
)
"""Two runs of one script on one computer."""
THEN_AND_NOW = SideNames("the recorded run", "the repeated run", "then", "now", "then", "now", "then", "now")
