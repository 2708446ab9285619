"""Determine on which of several machines the failure of a run began: one that fails makes the others fail."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from orchestrator.leases.joining import CLOCKS_S
from orchestrator.model import Exited, RunRecord
from orchestrator.model.files import last_bytes
from orchestrator.model.outcomes import ExitReason
from orchestrator.runs.logs import LOG

_TAIL = 16 << 10
"""Bytes of the end of a job's output."""

_LOST_A_PEER = re.compile(
    rb"Connection(Reset|Refused|Aborted|)Error|BrokenPipe|EOFError|IncompleteReadError"
    rb"|[Cc]onnection (was )?(reset|refused|closed|aborted)|[Bb]roken pipe|[Ss]ocket closed"
    rb"|remote process exited|[Pp]eer .{0,80}(dead|unreachable|down|closed)"
    rb"|UNAVAILABLE|UnavailableError|Collective ops is aborted|heartbeat timeout|[Cc]oordination service"
)
"""Messages of Python, gRPC, TensorFlow, JAX, gloo and NCCL on a process that lost the others."""

_OF_THEIR_OWN = frozenset(
    {
        ExitReason.OUT_OF_MEMORY,
        ExitReason.DEVICE_OUT_OF_MEMORY,
        ExitReason.DISK_FULL,
        ExitReason.NOT_FINITE,
        ExitReason.DATA_FAILED,
    }
)
"""Reasons that the loss of another machine cannot have caused."""


@dataclass(frozen=True)
class End:
    """How the job of one machine ended. `at`: Unix seconds by the machine's clock; infinity if not known.
    `said`: the last part of its output.
    """

    rank: int
    reason: ExitReason
    at: float = math.inf
    said: bytes = b""

    @property
    def follows(self) -> bool:
        """Whether it looks like the consequence of another machine's end."""
        return self.reason not in _OF_THEIR_OWN and _LOST_A_PEER.search(self.said) is not None


def end_of(rank: int, record: RunRecord | None, at: float) -> End:
    """`record`: of the job on that machine; None if there is none."""
    if record is None:
        return End(rank, ExitReason.LOST, at)
    return End(rank, ExitReason(record.exit["reason"]), at, last_bytes(record.folder / LOG, _TAIL))


def began_on(failed: Collection[End]) -> tuple[int, ...]:
    """Return the ranks of the machines where the failure may have begun, the earliest first; () for no end.

    A machine that was lost explains the others. Otherwise it is the job that ended first. Clocks are equal to
    CLOCKS_S only: among those that ended within that time, one with a reason of its own explains the others,
    then those that did not lose a connection.
    """
    for explains in (_lost, _not_cancelled):
        failed = [end for end in failed if explains(end)] or failed
    first = min((end.at for end in failed), default=math.inf)
    together = sorted((end for end in failed if end.at <= first + CLOCKS_S), key=lambda end: end.at)
    for explains in (_has_own_reason, _did_not_follow):
        together = [end for end in together if explains(end)] or together
    return tuple(end.rank for end in together)


def told(ranks: Sequence[int], ends: Sequence[Exited]) -> str:
    """Return the ends of the machines where a failure may have begun as a sentence."""
    each = [f"node {rank}: {_why(end)}" for rank, end in zip(ranks, ends, strict=True)]
    if len(each) == 1:
        return each[0]
    return f"{' '.join(each)} They ended within {CLOCKS_S:.0f} s: each may have been the first."


def _why(end: Exited) -> str:
    return end.get("detail") or str(end["reason"])


def _lost(end: End) -> bool:
    return end.reason.interrupted


def _not_cancelled(end: End) -> bool:
    return end.reason != ExitReason.CANCELLED


def _has_own_reason(end: End) -> bool:
    return end.reason in _OF_THEIR_OWN


def _did_not_follow(end: End) -> bool:
    return not end.follows
