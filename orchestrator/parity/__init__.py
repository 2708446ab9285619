"""Two recorded runs → verdict, first divergent stage, suspected cause. Pure apart from reading files."""

from orchestrator.parity.verdict import compare, judge, named

__all__ = ["compare", "judge", "named"]
