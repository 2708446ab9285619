"""Bucket data that are downloaded during the run, if the profile says `stream: true`."""

from __future__ import annotations

import time

from orchestrator import sync
from orchestrator.model import TreeLink
from orchestrator.model.plain import moment
from orchestrator.model.progress import notice
from orchestrator.profile import DataTree
from orchestrator.session import buckets
from orchestrator.session.session import Session

_WEEK = 7 * 86400.0
_AFTER_S = 600.0


def streamed(session: Session, tree: DataTree, name: str, pin: buckets.Pin) -> TreeLink | None:
    """Return the tree that the run sees while the machine downloads it.

    None if the tree is complete already, or if the machine cannot mount it, which is reported: then it is
    downloaded before the run.
    """
    left = _left(session)
    link = buckets.linker(pin, min(left + _AFTER_S, _WEEK))
    try:
        shown = sync.stream(
            session.host, session.agent, pin.objects, name, link, session.progress, single=pin.single
        )
    except sync.CannotStream as error:
        notice(
            session.progress,
            f"Note: {pin.source} is downloaded before the run starts, despite `stream: true`: "
            f"{session.machine.id} cannot show data while they are downloaded ({error.why})",
        )
        return None
    if shown is None:
        return None
    session.progress.say(f"{pin.source} is downloaded during the run: {pin.size:,} bytes")
    if link.ends and link.ends.timestamp() < time.time() + left:
        notice(
            session.progress,
            f"The machine can fetch from {pin.source} until {moment(link.ends.timestamp())}, when the links "
            "that were created here expire; if an object is missing then, the run fails",
        )
    return TreeLink(shown.mount, tree.target, stream=shown.state)


def _left(session: Session) -> float:
    """Seconds until the machine's deadline."""
    lease = session.ledger.lease()
    return max(0.0, (lease.deadline or lease.now()) - lease.now())
