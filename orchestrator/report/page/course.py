"""The events of a ledger in words, one line each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from orchestrator.ledger import Event, LedgerEvent
from orchestrator.ledger import events as told
from orchestrator.model.plain import plain
from orchestrator.report.page import safe
from orchestrator.report.page.model import State
from orchestrator.report.units import money


@dataclass(frozen=True)
class Happened:
    """One line. `at`: Unix seconds by the ledger's clock."""

    at: float
    what: str
    detail: str = ""
    state: State = State.NONE


def course_of(events: Sequence[Event], started: Mapping[str, float]) -> Iterator[Happened]:
    """Yield what happened, in order. Events that cannot be read are left out.

    `started`: when each boot of the computer began, as in ledger.Lease.
    """
    for event in events:
        with suppress(KeyError, ValueError, TypeError):
            found = told.decode(event.event, event.data)
            what, detail, state = _words(found) if found else (plain(event.event)[:60], "", State.NONE)
            tick = event.tick
            at = event.time if tick is None else started.get(tick.boot, event.time - tick.up) + tick.up
            by = f" (by {safe.line(event.by, 60)})" if event.by else ""
            yield Happened(at, what, f"{safe.line(detail, 300)}{by}".strip(), state)


_Words = tuple[str, str, State]


def _words(found: LedgerEvent) -> _Words:
    match found:
        case told.LeaseOpened():
            return "opened", f"for run {found.for_run}" if found.for_run else "by orch up", State.NONE
        case told.LeaseKept():
            return "kept", "orch up took the machine that orch run had leased", State.NONE
        case told.ProfileChanged():
            return "profile changed", " ".join(map(str, found.profile.get("overrides", ()))), State.NONE
        case told.LeaseClosed():
            return "closed", "no machine is left", State.OK
    return _of_machine(found) or _of_run(found) or (found.kind, "", State.NONE)


def _of_machine(found: LedgerEvent) -> _Words | None:
    match found:
        case told.CreateIntent():
            offer = f"{found.instance_type} in {found.zone} at {money(found.price)}/h"
            return "machine requested", offer, State.NONE
        case told.CreateRefused():
            return "request refused", f"{found.fault}: {found.message or found.code}", State.NOTE
        case told.CreateAccepted():
            return "machine created", _name(found.machine), State.OK
        case told.MachineReached():
            return "machine reached", found.machine, State.NONE
        case told.MachineArmed():
            return "deadline set on the machine", found.machine, State.NONE
        case told.StackInstalled():
            return "packages installed", _installed(found.stack), State.NONE
        case told.DeleteIntent():
            return "deletion requested", ", ".join(found.machines), State.NONE
        case told.MachineEnded():
            return "machine ended", found.machine, State.NONE
    return None


def _of_run(found: LedgerEvent) -> _Words | None:
    match found:
        case told.RunStarted() | told.RunFound():
            number = found.draft.attempt.number
            return "run started", found.run_id + (f", attempt {number}" if number > 1 else ""), State.NONE
        case told.RunResumed():
            return "run continues", f"{found.run_id} from a checkpoint of attempt {found.attempt}", State.NOTE
        case told.RunEnded():
            state = State.OK if found.reason == "completed" else State.NOTE
            return "run ended", f"{found.run_id}: {found.reason.replace('_', ' ')}", state
        case told.RunCollected():
            left = f"; {len(found.left)} files stayed there" if found.left else ""
            return "results downloaded", f"{found.run_id}{left}", State.NOTE if left else State.OK
        case told.RunRefused():
            return "run not started", f"{found.run_id}: {found.detail}", State.NOTE
        case told.RunReleased():
            return "results released on the machine", found.run_id, State.NONE
        case told.RunSuperseded():
            return "run tried again", found.run_id, State.NONE
        case told.RunLost():
            return "results lost", f"{found.run_id}: {found.detail}", State.BAD
    return None


def _name(machine: Mapping[str, Any]) -> str:
    return " · ".join(
        filter(None, (safe.line(machine.get(key), 80) for key in ("id", "instance_type", "zone")))
    )


def _installed(stack: Mapping[str, Any]) -> str:
    seconds = safe.number(stack.get("seconds"))
    return f"in {seconds:.0f} s" if seconds is not None else ""
