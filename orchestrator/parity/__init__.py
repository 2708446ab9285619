"""Two recorded runs → verdict, first divergent stage, suspected cause. Pure apart from reading files."""

from orchestrator.parity.verdict import DIVERGENT, EQUIVALENT, IDENTICAL, UNSTABLE, compare, judge, named

__all__ = ["DIVERGENT", "EQUIVALENT", "IDENTICAL", "UNSTABLE", "compare", "judge", "named"]
