"""Have the other side download objects of a bucket, with links that are made here as they are needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

from orchestrator.errors import SyncError
from orchestrator.model import Agent, Host, Manifest, Progress, Silent
from orchestrator.model.answers import Count, Most, Sha256
from orchestrator.model.plain import last_words
from orchestrator.model.stores import Link, Stored
from orchestrator.runtime.fetch.objects import rows_of
from orchestrator.runtime.fetch.staging import Wanted
from orchestrator.sync.push import tree_path
from orchestrator.sync.scan import manifest_of
from orchestrator.sync.talk import Talk

_MOVED = 'rm -rf -- "$2" && mv -T -- "$1" "$2" && rm -rf -- "$1".*'


@dataclass(frozen=True)
class Fetched:
    """A tree of objects on the other side. `fetched`: how many were downloaded by this call; `damaged`:
    how many had to be downloaded again.
    """

    manifest: Manifest
    fetched: int
    damaged: int


@dataclass(frozen=True)
class _Word:
    """The next message of the other side: which links it needs, how many bytes have arrived, or that all
    have.
    """

    links: Annotated[tuple[Count, ...], Most(10_000)] = ()
    bytes: Count = 0
    digest: Sha256 | None = None
    sha256: Annotated[tuple[Sha256, ...], Most(10_000_000)] = ()
    fetched: Count = 0
    damaged: Count = 0


def fetch(
    host: Host,
    agent: Agent,
    objects: Sequence[Stored],
    name: str,
    link: Callable[[Stored], Link],
    progress: Progress | None = None,
    *,
    single: str = "",
) -> Fetched:
    """Make the tree `name` on the other side consist of `objects`, each in its listed version, and nothing
    else.

    `link` makes a link to one object; it is called again for an object whose link expired. With `single`, a
    name, the tree is that one file. A fetch that was interrupted continues when it is repeated. Raise
    ObjectRefused, with the object, if one does not arrive as it is listed; SyncError if the tree cannot be
    made.
    """
    progress = progress or Silent()
    total = sum(each.size for each in objects)
    wanted = [Wanted(each.key, each.size, each.version, each.checksum) for each in objects]
    with Talk(host, agent, "fetch", tree_path(agent, name)) as talk:
        talk.say({"objects": wanted, "single": single})
        while (word := talk.hear(_Word)).digest is None:
            if any(number >= len(objects) for number in word.links):
                raise talk.malformed("it asks for links of objects that are not in the tree")
            if word.links:
                made = [link(objects[number]) for number in word.links]
                talk.say({"links": [[each.url, dict(each.headers)] for each in made]})
            progress.transfer(name, min(word.bytes, total), total)
        manifest = _manifest(wanted, word)
        if manifest is None or manifest.digest != word.digest:
            raise talk.malformed("the tree that it made is not the one that was asked for")
    progress.transfer(name, total, total)
    return Fetched(manifest, word.fetched, word.damaged)


def is_there(host: Host, agent: Agent, name: str) -> bool:
    """Return whether the other side has anything of the tree `name`."""
    return host.run(("test", "-e", tree_path(agent, name)), timeout=60).returncode == 0


def prefetch(
    host: Host,
    agent: Agent,
    bodies: Sequence[Stored],
    name: str,
    link: Callable[[Stored], Link],
    progress: Progress | None = None,
    *,
    single: bool = False,
) -> None:
    """Download contents to where a push of the tree `name` looks for those of an earlier push, so that it
    sends only the rest.

    Each body is named by its SHA-256. Raises what `fetch` does.
    """
    staged = tree_path(agent, f"staged-{name}")
    fetch(host, agent, bodies, f"staged-{name}", link, progress)
    part = f"{tree_path(agent, name)}{'.single' if single else ''}.part"
    done = host.run(("sh", "-c", _MOVED, "sh", staged, part), timeout=600)
    if done.returncode != 0:
        raise SyncError(
            f"{host.name} could not store what it downloaded of {name}: {last_words(done.stderr)}"
        )


def _manifest(wanted: Sequence[Wanted], word: _Word) -> Manifest | None:
    """Return the manifest of the objects, with the hashes that the other side found; None if their number
    is wrong.
    """
    if len(word.sha256) != len(wanted):
        return None
    hashes = {each.path: found for each, found in zip(wanted, word.sha256, strict=True)}
    rows = rows_of(list(wanted))
    return manifest_of(row._replace(digest=hashes.get(row.path, "")) for row in rows)
