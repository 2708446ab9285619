"""The model check on both sides, with processes that are ready before the run ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator import jobs
from orchestrator.errors import OrchError
from orchestrator.hosts.here import HereHost
from orchestrator.model import Host
from orchestrator.runs import collect, model_check
from orchestrator.runs.model_check import Side
from orchestrator.session.session import Session, local_agent

_FRAMEWORKS = frozenset({"keras", "tf-keras", "tensorflow", "tensorflow-cpu"})
"""Packages whose import is most of what a check takes."""


@dataclass(frozen=True)
class Checkers:
    """The checker on the machine and the one on this computer."""

    there: Side
    here: Side


def checkers(session: Session, run_id: str) -> Checkers:
    """Return the checkers of both sides, with the interpreters of the run's stack."""
    lease = session.ledger.lease()
    stack = lease.runs[run_id].draft.stack or lease.stack or {}
    python = str(stack.get("interpreter") or session.agent.python)
    work, local = f"{jobs.run_dir(session.agent, run_id)}/work", local_agent(session.project)
    ours = replace(local, python=str(session.local().python))
    there = Side(session.host, replace(session.agent, python=python), work, work)
    here = Side(HereHost(), ours, str(_outputs(session, run_id)), str(session.profile.code.path))
    return Checkers(there, here)


def _outputs(session: Session, run_id: str) -> Path:
    return session.project.run(run_id) / collect.OUTPUTS


@contextmanager
def checkers_ahead(session: Session, run_id: str) -> Iterator[Checkers | None]:
    """Yield checkers that import their framework during the run; None if that saves no time.

    They run at the lowest priority, and only with plenty of free memory. Both end with the block.
    """
    with ExitStack() as running:
        sides, imports = None, session.profile.train.check_imports
        with suppress(OrchError, OSError):
            if _needs_framework(session):
                folder = _outputs(session, run_id)
                folder.mkdir(parents=True, exist_ok=True)
                running.callback(_remove_empty, folder)
                found = checkers(session, run_id)
                both = [
                    running.enter_context(model_check.started_ahead(side, imports))
                    for side in (found.there, found.here)
                ]
                sides = Checkers(*both)
        yield sides


def _needs_framework(session: Session) -> bool:
    return not session.rank and any(pin.name in _FRAMEWORKS for pin in session.lock().pins)


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


def still_usable(ready: Checkers | None, host: Host) -> Checkers | None:
    """Return `ready`, unless the connection was replaced, which closes its channel."""
    if ready is None or ready.there.host is host:
        return ready
    return replace(ready, there=replace(ready.there, host=host, ahead=None))
