"""How the outputs of two runs differ, in words. Names in them are as a run chose them."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.runs.outputs import ComparedOutput, Sameness

_NAMED = 3
_LONGEST = 200


def difference_words(output: ComparedOutput) -> str:
    """Return how an output that is not the same differs."""
    if output.found == Sameness.ONLY_FIRST:
        return "only the first run wrote it"
    if output.found == Sameness.ONLY_SECOND:
        return "only the second run wrote it"
    where = f" in {_names(output.members)}" if output.members else ""
    return f"other bytes{where}{_WEIGHTS[output.weights]}"


_WEIGHTS = {None: "", True: "; the weights are the same", False: "; the weights are not the same"}


def _names(members: Sequence[str]) -> str:
    """Return "a, b and c", or the first three and the number of the others."""
    shown = [each[:_LONGEST] for each in members[:_NAMED]]
    more = len(members) - len(shown)
    last = f"{more} more" if more else shown.pop() if len(shown) > 1 else ""
    return f"{', '.join(shown)} and {last}" if last else shown[0]
