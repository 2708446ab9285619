"""The barrier before a run on several machines starts: all are ready, equal and connected."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace

from orchestrator import jobs, stack
from orchestrator.errors import StackMismatch
from orchestrator.leases import joining
from orchestrator.ledger import Draft
from orchestrator.model import Fingerprint, Lock, is_allowed
from orchestrator.model.workers import WorkersVerdict
from orchestrator.session.session import Session, told
from orchestrator.training import workers

PORT = 20000
"""TensorFlow's port on the first machine; each further one has the next: they may share an address."""
_OTHER_FRAMEWORKS = 500
_SAME = ("cpu_model", "cpu_flags", "machine", "libc")
"""Facts of the platform that change how numbers are rounded."""


class Abandoned(Exception):
    """Another machine of the gang failed before the run was started."""


@dataclass(frozen=True)
class Compares:
    """The comparison of the machines with one process. `again`: the command that repeats the call."""

    run_id: str
    again: str


class StartBarrier:
    """A barrier for the threads of the machines. The last one to arrive verifies that all have the same
    packages and processors and reach each other, and compares them with one process if `compares` is given.

    `passed`: the run may start. `addresses`: of the machines for each other, by rank.
    """

    def __init__(
        self, addresses: Sequence[str], lock: Lock, allow: Sequence[str], compares: Compares | None
    ) -> None:
        self.addresses = addresses
        self.passed = False
        self._lock, self._allow = lock, allow
        self._fingerprints: dict[int, Fingerprint] = {}
        self._sessions: dict[int, Session] = {}
        self._drafts: dict[int, Draft | None] = {}
        self._compares = compares
        self._verdict: WorkersVerdict | None = None
        self._barrier = threading.Barrier(len(addresses), action=self._compare)

    def note_fingerprint(self, rank: int, fingerprint: Fingerprint) -> None:
        self._fingerprints[rank] = fingerprint

    def wait(self, rank: int, session: Session, run_id: str, draft: Draft | None) -> None:
        """Wait until all machines are ready. Raises Abandoned if another machine failed, unless an earlier
        call has started the run on this one.
        """
        self._sessions[rank], self._drafts[rank] = session, draft
        try:
            self._barrier.wait()
        except threading.BrokenBarrierError:
            if jobs.state(session.host, session.agent, run_id).state == "absent":
                raise Abandoned from None

    def abandon_unless_passed(self) -> None:
        """Release the waiting threads if a machine will not arrive."""
        if not self.passed:
            self._barrier.abort()

    def _compare(self) -> None:
        """Verify and compare the machines. Called by the last thread, while the others wait."""
        first = self._fingerprints.get(0)
        for rank, other in sorted(self._fingerprints.items()):
            if rank and first is not None:
                _require_equal(self._lock, self._allow, first, other, rank)
        sessions = [self._sessions[rank] for rank in range(len(self.addresses))]
        joining.require_met(sessions, self.addresses)
        self._compare_with_one(sessions)
        self.passed = True

    def _compare_with_one(self, sessions: Sequence[Session]) -> None:
        """Compare what the machines compute together with one process, if that is asked for."""
        drafts = [self._drafts[rank] for rank in range(len(sessions))]
        jobs_ = [draft.job for draft in drafts if draft is not None and draft.job is not None]
        if self._compares is None or len(jobs_) < len(sessions):
            return
        env = [environment(rank, self.addresses) for rank in range(len(sessions))]
        together = [workers.Worker(*each) for each in zip(sessions, jobs_, env, strict=True)]
        self._verdict = workers.compare_with_one(together, self._compares.run_id)
        workers.require_equal(self._verdict, sessions[0], self._compares.run_id, self._compares.again)

    def judged(self, draft: Draft | None) -> Draft | None:
        """Return the draft of the first machine, with the verdict on the workers."""
        if draft is None or self._verdict is None:
            return draft
        return replace(draft, parity=workers.as_part(draft.parity, self._verdict))


@dataclass(frozen=True)
class GangNode:
    """One machine of several. Implements options.Node."""

    rank: int
    attempt: int
    barrier: StartBarrier

    def environment(self) -> dict[str, str]:
        return environment(self.rank, self.barrier.addresses)

    def note_fingerprint(self, fingerprint: Fingerprint) -> None:
        self.barrier.note_fingerprint(self.rank, fingerprint)

    def wait(self, session: Session, run_id: str, draft: Draft | None) -> Draft | None:
        self.barrier.wait(self.rank, session, run_id, draft)
        return draft if self.rank else self.barrier.judged(draft)


def environment(rank: int, addresses: Sequence[str]) -> dict[str, str]:
    """Return the variables from which TensorFlow, JAX and torch read the addresses and the own rank."""
    places = [f"{address}:{PORT + number}" for number, address in enumerate(addresses)]
    cluster = {"cluster": {"worker": places}, "task": {"type": "worker", "index": rank}}
    count, first = str(len(addresses)), addresses[0]
    return {
        "TF_CONFIG": json.dumps(cluster),
        "JAX_COORDINATOR_ADDRESS": f"{first}:{PORT + _OTHER_FRAMEWORKS}",
        "JAX_NUM_PROCESSES": count,
        "JAX_PROCESS_ID": str(rank),
        "MASTER_ADDR": first,
        "MASTER_PORT": str(PORT + _OTHER_FRAMEWORKS + 1),
        "WORLD_SIZE": count,
        "RANK": str(rank),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "ORCH_NODES": count,
        "ORCH_RANK": str(rank),
    }


def _require_equal(
    lock: Lock, allow: Sequence[str], first: Fingerprint, other: Fingerprint, rank: int
) -> None:
    """Raise StackMismatch if two machines differ in what can change numbers."""
    found = stack.differences(lock, first, other, allow)
    differing = [
        one
        for one in found
        if not is_allowed(one.kind, one.name, allow)
        and (not one.declared or one.kind == "driver" or (one.kind == "platform" and one.name in _SAME))
    ]
    if differing:
        names = ", ".join(one.name for one in differing)
        listed = "; ".join(told(one) for one in differing)
        raise StackMismatch(
            f"Node {rank} differs from node 0 (here: node 0, there: node {rank}): {listed}.",
            next_command=f"orch down, then up again; or allow it by name: stack.allow: [{names}]",
        )
