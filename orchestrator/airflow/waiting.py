"""Whether a run that was left on its machine still goes on."""

from __future__ import annotations

from orchestrator.api import status

_GOING = ("started", "queued", "running")
_SILENT = "unknown"
"""The beginning of the state of a run whose machine did not answer."""


def is_active(folder: str, run_id: str) -> bool:
    """Ask the cloud, and the machine over ssh; takes seconds.

    A machine that does not answer counts as active, because its provider still lists it. False once the run
    has ended, its machine is gone, or no open lease has it. Raises OrchError if the cloud does not answer.
    """
    runs = [run for lease in status(folder=folder, ask=True) for run in lease.runs]
    states = [str(run["state"]) for run in runs if run["run_id"] == run_id and not run["lost"]]
    return any(state in _GOING or state.startswith(_SILENT) for state in states)
