"""Two recorded runs → verdict, first divergent stage, suspected cause. Pure apart from reading files."""

from orchestrator.parity.recorded import compare_records
from orchestrator.parity.verdict import compare, judge

__all__ = ["compare", "compare_records", "judge"]
