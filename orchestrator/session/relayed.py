"""Bucket data for a machine that cannot reach the bucket: downloaded to this computer, then sent like local
data.
"""

from __future__ import annotations

import hashlib

from orchestrator import sync
from orchestrator.hosts.reach import unreachable
from orchestrator.model import Manifest
from orchestrator.model.progress import notice
from orchestrator.model.stores import Stored
from orchestrator.session import buckets
from orchestrator.session.session import Session
from orchestrator.session.work_locks import downloading


def out_of_reach(session: Session, link: buckets.Linker, of: Stored) -> str | None:
    """Return why the machine cannot download `of`, and the objects beside it, with links like `link`; None if
    it can.
    """
    try:
        return unreachable(session.host, session.agent.python, [link(of).url])
    except buckets.CannotSign:
        return "the credentials here cannot sign links to it."


def relayed(session: Session, name: str, pin: buckets.Pin, why: str) -> Manifest:
    """Create the tree `name` on the machine from the objects of `pin`, through this computer.

    The objects stay in `.orch/relayed/` for later runs and machines.
    """
    notice(
        session.progress,
        f"{pin.source} is downloaded to this computer and sent to {session.machine.id}, because {why}",
    )
    folder = session.project.state / "relayed" / hashlib.sha256(pin.source.encode()).hexdigest()[:16]
    place = folder / (pin.single or "objects")

    def look() -> sync.Scan:
        return sync.scan(place, cache=session.project.cache, data=True)

    with downloading(session.project, pin.source, folder.name, session.progress):
        buckets.bring(pin, pin.objects, place, session.progress)
        pushed = sync.push_latest(session.host, session.agent, look, name, progress=session.progress)
    return pushed.manifest
