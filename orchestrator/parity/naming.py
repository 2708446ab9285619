"""The names of the two sides of a comparison in sentences."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SideNames:
    """The names of A and B in a sentence: as subject, after "in", after "of" and after "to"."""

    a: str
    b: str
    in_a: str
    in_b: str
    of_a: str
    of_b: str
    to_a: str
    to_b: str

    def subject(self, side: str) -> str:
        """Return the run of `side` ("A" or "B") as the subject of a sentence."""
        return self.a if side == "A" else self.b

    def inside(self, side: str) -> str:
        """Return the words for something in `side`: "in A", "here"."""
        return self.in_a if side == "A" else self.in_b

    def of(self, side: str) -> str:
        """Return the words for something that belongs to `side`: "of A", "here"."""
        return self.of_a if side == "A" else self.of_b

    def to(self, side: str) -> str:
        """Return the words for a destination: "to A", "here"."""
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
"""Names for two runs of one script on one computer."""
THEN_AND_NOW = SideNames("the recorded run", "the repeated run", "then", "now", "then", "now", "then", "now")
