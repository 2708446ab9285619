"""How a run ended, in words that follow its name."""

from __future__ import annotations

import pytest

from orchestrator.model.outcomes import ExitReason, ending


@pytest.mark.parametrize("reason", [*ExitReason, "of_a_later_version"])
def test_an_ending_has_no_name_of_code_in_it(reason: str) -> None:
    assert "_" not in ending(reason)
    assert ending(reason) == reason.replace("_", " ") or ending(reason).split()[0] in (
        "was", "ran", "filled", "reached", "made", "had", "did", "is",
    )  # fmt: skip


def test_what_failed_failed() -> None:
    assert (ending("failed"), ending("device_out_of_memory")) == ("failed", "ran out of GPU memory")
