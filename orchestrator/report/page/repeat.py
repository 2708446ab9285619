"""Everything needed to repeat the run: commands, code, versions, digests."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.model import RunRecord
from orchestrator.model.counted import counted
from orchestrator.report.page import safe
from orchestrator.report.page.model import Align, Block, Column, Commands, Row, Section, Table


def section(record: RunRecord) -> Section:
    rows = tuple(_digests(record))
    commands = tuple(_by_hand(record))
    blocks: list[Block] = [
        *([Commands("From the project's folder", commands)] if commands else []),
        *(
            [Table((Column("what"), Column("value", Align.CODE)), rows, "Versions and digests")]
            if rows
            else []
        ),
    ]
    lead = "The run is the same where command, code, data and lock have these digests."
    return Section("repeat", "Repeat it", tuple(blocks), lead)


def _by_hand(record: RunRecord) -> Iterator[str]:
    run = shlex.quote(safe.line(record.run_id, 200))
    if record.machine and safe.mapping(record.code).get("digest"):
        yield f"orch rerun {run}"
        return
    if record.machine:
        yield "orch up PROFILE.yaml"
        yield "orch train" + (" --local-parity" if record.parity else "")
        yield "orch down"
    elif record.command:
        yield f"orch record -- {_command(record)}"
    yield f"orch compare {run} NEW_RUN"


def _command(record: RunRecord) -> str:
    return safe.line(shlex.join(safe.line(word, 2_000) for word in record.command or ()), 4_000)


def _digests(record: RunRecord) -> Iterator[Row]:
    code, data, stack = (safe.mapping(each) for each in (record.code, record.data, record.stack))
    told = (
        ("command", _command(record)),
        ("code", _with_files(code)),
        ("git", revision_line(code)),
        ("data", _with_files(data)),
        ("packages", safe.line(stack.get("digest"), 64)),
        ("lock", safe.line(stack.get("lock"), 64)),
        ("Python", safe.line(stack.get("python"), 40)),
    )
    return (Row((name, value)) for name, value in told if value)


def _with_files(facts: Mapping[str, Any]) -> str:
    digest, files = safe.line(facts.get("digest"), 64), safe.count(facts.get("files"))
    return f"{digest} ({counted(files, 'file')})" if digest and files is not None else digest


def revision_line(code: Mapping[str, Any]) -> str:
    """Return the git revision, its branch, and how much was not committed; "" outside a repository."""
    git = safe.mapping(code.get("git"))
    revision, branch = safe.line(git.get("revision"), 64), safe.line(git.get("branch"), 100)
    if not revision:
        return ""
    changed = safe.count(git.get("changed")) if git.get("dirty") else None
    dirty = f", with {counted(changed, 'changed path')}" if changed else ""
    return f"{revision}{f' ({branch})' if branch else ''}{dirty}"
