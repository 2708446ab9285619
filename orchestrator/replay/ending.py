"""How a repeated run ended, as the beginning of a sentence about why it says nothing."""

from __future__ import annotations

from orchestrator.model.runs import Exit


def end_of_job(exit: Exit | None) -> str:
    """Describe the end of a job; None: its supervisor was lost with it."""
    if exit is None:
        return "the process that supervises it was lost"
    detail = exit.detail.strip().rstrip(".")
    return detail[:1].lower() + detail[1:] if detail else f"it ended: {exit.reason.replace('_', ' ')}"


def end_of_fork(code: int | None, signal: int | None) -> str:
    """Describe the end of a program in a fork."""
    return f"the command was ended by signal {signal}" if signal else f"the command ended with status {code}"
