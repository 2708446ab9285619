"""Everything that is needed to run it again: commands, code, versions, digests."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.model import RunRecord
from orchestrator.model.counted import counted
from orchestrator.report.page import safe
from orchestrator.report.page.model import Align, Block, Column, Commands, Note, Notes, Row, Section, Table

_REVISION = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")


def section(record: RunRecord) -> Section:
    rows = tuple(_digests(record))
    said = _code_words(record)
    blocks: list[Block] = [
        Commands(
            "With orch, from the project's folder",
            ("orch rerun " + shlex.quote(safe.line(record.run_id, 200)),),
        ),
        Commands("By hand", tuple(_by_hand(record))),
        *([Notes((Note("code", said),))] if said else []),
        *(
            [Table((Column("what"), Column("value", Align.CODE)), rows, "Versions and digests")]
            if rows
            else []
        ),
    ]
    lead = (
        "`orch rerun` runs the recorded command on the recorded code, if that can still be had, and compares."
    )
    return Section("repeat", "Repeat it", tuple(blocks), lead.replace("`", ""))


def _by_hand(record: RunRecord) -> Iterator[str]:
    git, request = _git(record), safe.mapping(record.request)
    revision = safe.line(git.get("revision"), 64)
    if _REVISION.fullmatch(revision):
        yield f"git checkout {revision}"
    if record.machine:
        profile = shlex.quote(safe.line(request.get("profile"), 300) or "PROFILE.yaml")
        sets = "".join(
            f" --set {shlex.quote(safe.line(each, 300))}" for each in safe.items(request.get("overrides"), 50)
        )
        yield f"orch up {profile}{sets}"
        yield "orch train" + (" --local-parity" if record.parity else "")
        yield "orch down"
    elif record.command:
        yield f"orch record -- {_command(record)}"


def _command(record: RunRecord) -> str:
    return safe.line(shlex.join(safe.line(word, 2_000) for word in record.command or ()), 4_000)


def _git(record: RunRecord) -> Mapping[str, Any]:
    return safe.mapping(safe.mapping(record.code).get("git"))


def _code_words(record: RunRecord) -> str:
    git = _git(record)
    revision = safe.line(git.get("revision"), 64)
    if not revision:
        return (
            "The code lay in no git repository; its files are known by their digests." if record.code else ""
        )
    if not git.get("dirty"):
        return f"Exactly revision {revision[:12]}, with nothing changed."
    changed = safe.count(git.get("changed")) or 0
    what = counted(changed, "file") if changed else "some files"
    return f"Revision {revision[:12]} with {what} changed; the digest of the changes is below."


def _digests(record: RunRecord) -> Iterator[Row]:
    code, data, stack = (safe.mapping(each) for each in (record.code, record.data, record.stack))
    request, git = safe.mapping(record.request), _git(record)
    told = (
        ("command", _command(record)),
        ("orch", safe.line(request.get("orch"), 40)),
        ("profile", safe.line(request.get("profile"), 300)),
        ("profile's SHA-256", safe.line(request.get("profile_sha256"), 64)),
        ("git revision", safe.line(git.get("revision"), 64)),
        ("changes beside it", safe.line(git.get("diff"), 64) if git.get("dirty") else ""),
        ("code", _with_files(code)),
        ("data", _with_files(data)),
        ("packages", safe.line(stack.get("digest"), 64)),
        ("lock", safe.line(stack.get("lock"), 64)),
        ("Python", safe.line(stack.get("python"), 40)),
    )
    return (Row((name, value)) for name, value in told if value)


def _with_files(facts: Mapping[str, Any]) -> str:
    digest, files = safe.line(facts.get("digest"), 64), safe.count(facts.get("files"))
    return f"{digest} ({counted(files, 'file')})" if digest and files is not None else digest
