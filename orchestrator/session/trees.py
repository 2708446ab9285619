"""Code and data: scanned here, sent to the machine and verified there; the layout is the same on both
sides.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator import sync
from orchestrator.errors import SyncError, UsageError
from orchestrator.model import Agent, DataFacts, Manifest, Progress, TreeLink
from orchestrator.model.acceptance import MODELS
from orchestrator.model.counted import counted
from orchestrator.model.progress import notice
from orchestrator.profile import DataTree, Profile
from orchestrator.session import buckets, relayed, staging, streaming
from orchestrator.session.session import Session

CODE_TREE = "code"


@dataclass(frozen=True)
class Trees:
    """The trees in a job's working folder on the machine, and facts of the data."""

    there: tuple[TreeLink, ...]
    code: Manifest
    data: DataFacts
    data_files: Mapping[str, str]
    """See `contents_of`."""


def send(session: Session, verify_stack: Callable[[], object], *, new_data: bool = False) -> Trees:
    """Send what changed. With `new_data`, the current objects of buckets are pinned anew.

    `verify_stack` waits until the machine's stack was verified, and raises what is wrong with it: it is
    called before data are created or sent, which can take long. Raises SyncError, and its subclass
    DataChanged if a bucket differs from this lease's earlier runs.
    """
    profile = session.profile
    pins = {
        number: buckets.pinned(
            pin_path(session, number), each.bucket, accept=new_data, requester_pays=each.requester_pays
        )
        for number, each in enumerate(profile.data)
        if each.bucket
    }
    local = [each for each in profile.data if not each.bucket]
    if not all(each.source.exists() for each in local):
        verify_stack()
    for each in local:
        prepare(session, each)
    code = _sent(session, CODE_TREE, profile.code.path, ignore=code_ignored(profile))
    verify_stack()
    there = [_link(session.agent, CODE_TREE, ".", code.manifest, copied=True)]
    manifests = []
    for number, each in enumerate(profile.data):
        link, manifest = _data(session, each, f"data-{number}", pins.get(number))
        there.append(link)
        manifests.append(manifest)
    facts = facts_of(manifests, sum(each.stream for each in profile.data))
    return Trees(tuple(there), code.manifest, facts, contents_of(profile.data, manifests))


def _data(session: Session, tree: DataTree, name: str, pin: buckets.Pin | None) -> tuple[TreeLink, Manifest]:
    """Return one tree of data on the machine, and the manifest that identifies it in the record."""
    if pin is None:
        sent = _sent(session, name, tree.source, data=True, staged=tree.stage).manifest
        return _link(session.agent, name, tree.target, sent), sent
    if why := relayed.out_of_reach(session, buckets.linker(pin), pin.objects[0]):
        sent = relayed.relayed(session, name, pin, why)
        known = sync.listed_manifest(pin.objects) if tree.stream else sent
        return _link(session.agent, name, tree.target, sent), known
    if not tree.stream:
        fetched = _fetched(session, name, pin)
        return _link(session.agent, name, tree.target, fetched), fetched
    link = streaming.streamed(session, tree, name, pin)
    if link is None:
        link = _link(session.agent, name, tree.target, _fetched(session, name, pin))
    return link, sync.listed_manifest(pin.objects)


def pin_path(session: Session, number: int) -> Path:
    """Where the pin of the profile's data entry with this number is stored for the lease."""
    return session.ledger.path.parent / f"data-{number}.json"


def mirror_samples(session: Session) -> None:
    """Download the samples of pinned buckets, which the first steps read."""
    for number, each in enumerate(session.profile.data):
        if each.bucket:
            pin = buckets.pinned(pin_path(session, number), each.bucket, requester_pays=each.requester_pays)
            buckets.mirror(each, pin, session.progress)


def _fetched(session: Session, name: str, pin: buckets.Pin) -> Manifest:
    """Create the tree `name` on the machine from a bucket's objects, which the machine downloads itself."""
    done = sync.fetch(
        session.host,
        session.agent,
        pin.objects,
        name,
        buckets.linker(pin),
        session.progress,
        single=pin.single,
    )
    if done.damaged:
        notice(
            session.progress,
            f"Note: {counted(done.damaged, 'object')} of {pin.source} arrived damaged and were "
            "downloaded again",
        )
    return done.manifest


def _sent(
    session: Session,
    name: str,
    root: Path,
    *,
    ignore: Sequence[str] = (),
    data: bool = False,
    staged: bool = False,
) -> sync.Scan:
    """Make the tree `name` on the machine equal to `root`; returns the scan of `root`."""

    def look() -> sync.Scan:
        return sync.scan(root, ignore=ignore, cache=session.project.cache, data=data)

    if staged:
        staging.fill(session, look(), name)
    found = sync.push_latest(session.host, session.agent, look, name, progress=session.progress)
    for warning in found.warnings:
        notice(session.progress, f"Note: {warning}")
    return found


def code_ignored(profile: Profile) -> tuple[str, ...]:
    """Ignore patterns for code: the profile's, the data folders (sent as data), and the files that this
    command prints to.
    """
    root = profile.code.path.resolve()
    inside = [
        "/" + _literal(each.source.resolve().relative_to(root).as_posix())
        for each in profile.data
        if each.source.resolve().is_relative_to(root) and each.source.resolve() != root
    ]
    inside += ["/" + _literal(path.relative_to(root).as_posix()) for path in _printed_to(root)]
    return (*profile.code.ignore, *inside, "/runs/", *_current_models(root))


def _current_models(root: Path) -> list[str]:
    """The links in `models/` to runs, which are results; the folder too, if it holds nothing else."""
    links: list[str] = []
    others: list[str] = []
    with contextlib.suppress(OSError):
        for path in (root / MODELS).iterdir():
            ours = path.is_symlink() and path.resolve().parent == root / "runs"
            (links if ours else others).append(path.name)
    if links and others in ([], [".gitignore"]):
        return [f"/{MODELS}/"]
    return [f"/{MODELS}/{_literal(name)}" for name in links]


def _printed_to(root: Path) -> set[Path]:
    """Files below `root` that receive this process's stdout or stderr: `orch run >nightly.log`."""
    found = set()
    for number in (1, 2):
        with contextlib.suppress(OSError):
            path = Path(f"/dev/fd/{number}").resolve(strict=True)
            if path.is_relative_to(root) and os.path.samestat(path.stat(), os.fstat(number)):
                found.add(path)
    return found


def _literal(path: str) -> str:
    """A pattern that matches this path only."""
    return re.sub(r"([\\*?\[\]#! ])", r"\\\1", path)


def _link(agent: Agent, name: str, target: str, sent: Manifest, *, copied: bool = False) -> TreeLink:
    return TreeLink(sync.tree_path(agent, name), target, copied, sent.digest)


def check_targets(profile: Profile) -> None:
    """Raise UsageError if data with an absolute target do not exist there on this computer, where the local
    side of parity would look for them.
    """
    for tree in profile.data:
        target = Path(tree.target)
        if target.is_absolute() and not target.exists():
            raise UsageError(
                f"The script expects its data at {target}, but this computer does not have them at that "
                "path; the local side of --local-parity would read nothing, or other data.",
                next_command=f"sudo mkdir -p {shlex.quote(str(target.parent))} && "
                f"sudo ln -s {shlex.quote(str(tree.source))} {shlex.quote(str(target))}",
            )


def contents_of(data: Sequence[DataTree], manifests: Sequence[Manifest]) -> dict[str, str]:
    """Return each file of the data, as the script names it, and its content or what it links to."""
    return {
        f"{tree.target}/{entry.path}" if entry.path else tree.target: entry.digest or entry.target
        for tree, manifest in zip(data, manifests, strict=True)
        for entry in manifest.entries
        if entry.kind != "dir"
    }


def facts_of(manifests: Sequence[Manifest], streamed: int = 0) -> DataFacts:
    """Return the `data` of a run's record: one digest of all trees, the numbers of files and bytes, and how
    many trees are `streamed`.
    """
    files = [entry for manifest in manifests for entry in manifest.entries if entry.kind == "file"]
    digest = hashlib.sha256("\n".join(manifest.digest for manifest in manifests).encode()).hexdigest()
    facts: DataFacts = {
        "digest": digest if manifests else None,
        "files": len(files),
        "bytes": sum(entry.size for entry in files),
    }
    return {**facts, "streamed": streamed} if streamed else facts


def prepare(session: Session, tree: DataTree) -> None:
    """Create missing data with the profile's command `prepare`, on this computer, in the local stack."""
    make(tree, session.profile, lambda: session.local().python, session.progress)


def make(tree: DataTree, profile: Profile, python_of: Callable[[], Path], progress: Progress) -> None:
    """Like `prepare`. `python_of` finds the local stack's interpreter if there is something to create."""
    if tree.bucket:
        buckets.mirror(tree, buckets.listed(tree.bucket, requester_pays=tree.requester_pays), progress)
        return
    if tree.source.exists():
        return
    if not tree.prepare:
        raise SyncError(
            f"The data {tree.source} does not exist.",
            next_command="put the data there, or set data[].prepare, the command that creates them",
        )
    progress.say(f"Preparing {tree.source.name}: {shlex.join(tree.prepare)}")
    python = python_of()
    argv = [str(python), *tree.prepare[1:]] if tree.prepare[0] in ("python", "python3") else tree.prepare
    done = subprocess.run(argv, cwd=profile.code.path, capture_output=True, text=True, check=False)
    if done.returncode != 0 or not tree.source.exists():
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
        made = "" if tree.source.exists() else f", and {tree.source} is still absent"
        raise SyncError(
            f"{shlex.join(tree.prepare)} ended with exit code {done.returncode}{made}:\n{tail}",
            next_command=f"cd {shlex.quote(str(profile.code.path))} && {shlex.join(map(str, argv))}",
        )
