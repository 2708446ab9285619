"""Objects of a bucket, shown on the other side with names and sizes while it still downloads them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

from orchestrator.model import Agent, Host, Manifest, Progress, Silent
from orchestrator.model.answers import Count, Most
from orchestrator.model.stores import Link, Stored
from orchestrator.runtime.fetch.objects import rows_of
from orchestrator.runtime.fetch.staging import Wanted
from orchestrator.sync.push import tree_path
from orchestrator.sync.scan import manifest_of
from orchestrator.sync.talk import Talk


@dataclass(frozen=True)
class Streamed:
    """Where the other side shows a tree that it is still downloading (`mount`), and the file with the
    state of that download.
    """

    mount: str
    state: str


@dataclass(frozen=True)
class _Word:
    """The next message of the other side: which links it needs, or where the tree is shown."""

    links: Annotated[tuple[Count, ...], Most(10_000)] = ()
    mount: str | None = None
    state: str = ""


def stream(
    host: Host,
    agent: Agent,
    objects: Sequence[Stored],
    name: str,
    link: Callable[[Stored], Link],
    progress: Progress | None = None,
    *,
    single: str = "",
) -> Streamed | None:
    """Show the tree `name` on the other side at once, with the names and sizes of `objects`, while they are
    downloaded.

    Opening a file blocks until its object has arrived and was verified. Return None if all objects are there
    already: `fetch` then makes the tree. `link` makes a link that lasts until its object has arrived. Raise
    CannotStream if the other side cannot show a tree, and SyncError.
    """
    progress = progress or Silent()
    wanted = [Wanted(each.key, each.size, each.version, each.checksum) for each in objects]
    made = 0
    with Talk(host, agent, "stream", tree_path(agent, name)) as talk:
        talk.say({"objects": wanted, "single": single})
        while (word := talk.hear(_Word)).mount is None:
            if any(number >= len(objects) for number in word.links):
                raise talk.malformed("it asks for links of objects that are not in the tree")
            links = [link(objects[number]) for number in word.links]
            made += len(links)
            progress.say(f"{name}: {made:,} links of {len(objects):,} objects are made")
            talk.say({"links": [[each.url, dict(each.headers)] for each in links]})
    return Streamed(word.mount, word.state) if word.mount else None


def listed_manifest(objects: Sequence[Stored]) -> Manifest:
    """Return the manifest of the objects' tree, each with its checksum in the store, or with its version
    if it has none.
    """
    told = {each.key: each.checksum or f"version {each.version}" for each in objects}
    rows = rows_of([Wanted(each.key, each.size, each.version, each.checksum) for each in objects])
    return manifest_of(
        row._replace(digest=hashlib.sha256(told[row.path].encode()).hexdigest()) if row.path in told else row
        for row in rows
    )
