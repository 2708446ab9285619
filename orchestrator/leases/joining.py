"""The network between the machines that train one model: opened for them alone, and tried."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from orchestrator.errors import HostError
from orchestrator.ledger import Lease
from orchestrator.ledger.events import JoinIntent
from orchestrator.model.answers import Between, Malformed, Most, decoded, malformed
from orchestrator.model.beside import Beside
from orchestrator.model.counted import counted
from orchestrator.model.plain import last_words
from orchestrator.providers import open_provider
from orchestrator.session.machines import serving
from orchestrator.session.project import Project
from orchestrator.session.session import Session

PORTS = range(1024, 65535)
"""What the frameworks may listen on: besides the port that they are told, some choose others. The rules of
local machines cannot name the last port.
"""
MEETING_PORT = 21000
_MEETING_S = 20.0
CLOCKS_S = 1.0
"""By how many seconds the clocks may differ: tokens and file times are compared between the machines."""

_Ranks = Annotated[dict[str, Annotated[float, Between(-1e11, 1e11)]], Most(1000)]


@dataclass(frozen=True)
class Met:
    """What one machine saw of the others; see runtime.meeting.meet."""

    reached: Annotated[tuple[int, ...], Most(1000)]
    heard: Annotated[tuple[int, ...], Most(1000)]
    ahead: _Ranks
    took: _Ranks
    problem: Annotated[str, Most(1000)] = ""


def addresses_of(project: Project, leases: Sequence[Lease]) -> tuple[str, ...]:
    """Open the network between the machines of the leases, by rank; return the address of each for the
    others. "" for all if one is gone.
    """
    first = leases[0]
    provider = open_provider(first.profile["cloud"])
    machines = [machine for lease in leases if (machine := serving(provider, lease)) is not None]
    if len(machines) < len(leases):
        return ("",) * len(leases)
    project.ledger(first.id).record(JoinIntent(tuple(machine.id for machine in machines)))
    return tuple(provider.join(first.id, machines, PORTS))


def require_met(sessions: Sequence[Session], addresses: Sequence[str]) -> None:
    """Raise HostError if a machine does not reach another one, or their clocks differ."""
    found = apart(sessions, addresses)
    if not found:
        return
    lease = sessions[0].ledger.lease()
    price = sum(session.machine.price for session in sessions)
    error = HostError(
        f"The machines of {lease.id} cannot train together: {'; '.join(found)}.",
        exists=f"{counted(len(sessions), 'machine')} are still running, at ${price:.2f}/h.",
        next_command=f"orch down && {lease.up_command}",
    )
    error.once_ended = lease.up_command
    raise error


def apart(sessions: Sequence[Session], addresses: Sequence[str]) -> list[str]:
    """Have all machines connect to each other; return what `problems` finds."""
    places = [f"{address}:{MEETING_PORT + rank}" for rank, address in enumerate(addresses)]
    asked = [Beside(functools.partial(_meet, session, places)) for session in sessions]
    return problems([each.result() for each in asked])


def problems(met: Sequence[Met]) -> list[str]:
    """Return a sentence for each machine that cannot listen or cannot reach another one, and for each clock
    that differs from another one.
    """
    found = [f"node {rank} cannot listen: {one.problem}" for rank, one in enumerate(met) if one.problem]
    for rank, one in enumerate(met):
        lacking = [other for other in range(len(met)) if other != rank and other not in one.reached]
        found += [f"node {rank} does not reach node {other}" for other in lacking]
    for rank, one in enumerate(met):
        for other, ahead in one.ahead.items():
            least = abs(ahead) - one.took.get(other, 0.0) / 2
            if least > CLOCKS_S and other.isdecimal() and rank < int(other):
                found.append(f"the clock of node {other} is {ahead:+.1f} s from that of node {rank}")
    return found


def _meet(session: Session, places: Sequence[str]) -> Met:
    rank = session.ledger.lease().rank
    argv = session.agent.argv("meet", "--rank", str(rank), "--seconds", str(_MEETING_S), *places)
    done = session.host.run(argv, timeout=_MEETING_S + 30)
    if done.returncode != 0:
        raise HostError(f"Node {rank} could not try its network: {last_words(done.stderr)}")
    try:
        return decoded(Met, done.stdout)
    except Malformed as error:
        raise malformed(session.machine.name, "meet", str(error)) from None
