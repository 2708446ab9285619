"""The output of `orch doctor`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.model import Check, CheckState, Readiness, Topic, clouds
from orchestrator.model.counted import counted
from orchestrator.report.units import table

_TIERS = {
    "netns": "isolated: own file system, network, processes and limits",
    "userns": "isolated without root: some limits are not enforced",
    "process": "not isolated: an sshd on this system",
}


def doctor_text(found: Mapping[str, Any]) -> str:
    tier = found.get("tier")
    lines = [f"local machines: {tier}: {_TIERS.get(str(tier), 'not possible on this computer')}"]
    lines += [f"  limit: {each}" for each in found.get("lost") or ()]
    lines += [f"  missing: {each}" for each in found.get("missing") or ()]
    if found.get("fix"):
        lines.append(f"  Next: {found['fix']}")
    rows = [["check", "", "detail"]]
    rows += [[c["name"], "ok" if c["ok"] else "NO", c["detail"]] for c in found["checks"]]
    return "\n".join([*lines, "", table(rows)])


# ---------------------------------------------------------------- a cloud

_MANY = 4
"""From this number on, permissions in the same state share one line."""

_MARKS = {
    CheckState.OK: "ok",
    CheckState.WARNING: "!",
    CheckState.MISSING: "NO",
    CheckState.UNKNOWN: "?",
}


def readiness_text(readiness: Readiness, profile: Path | None) -> str:
    """One line per check, then the remedies, then the next command."""
    return "\n".join(
        [*_head(readiness), "", *_checked(readiness), *_remedies(readiness), "", _next(readiness, profile)]
    )


def _head(readiness: Readiness) -> Iterator[str]:
    noun = clouds.traits(readiness.cloud).account_noun
    parts = [readiness.cloud, f"{noun} {readiness.account}" if readiness.account else "", readiness.region]
    yield ", ".join(part for part in parts if part)
    if readiness.offer:
        offer = readiness.offer
        zone = f" in {offer.zone}" if offer.zone else ""
        gpu = f", {offer.accelerator_count} {offer.accelerator}" if offer.accelerator else ""
        spot = " (spot)" if offer.spot else ""
        yield f"checked for {offer.instance_type}{spot}{zone}: {counted(offer.cpus, 'CPU')}{gpu}"


def _checked(readiness: Readiness) -> Iterator[str]:
    rows = [["", "about", "what", ""]]
    for alike in _alike(readiness.checks):
        first = alike[0]
        mark, topic = _MARKS[first.state], str(first.topic)
        if first.topic is not Topic.PERMISSION or len(alike) < _MANY:
            rows += [[mark, topic, check.name, _line(check.detail)] for check in alike]
        elif first.state is CheckState.OK:
            rows.append([mark, topic, f"{len(alike)} granted", ""])
        else:
            names = ", ".join(check.name for check in alike)
            rows.append([mark, topic, f"{len(alike)} not known", f"{names}; --json says why"])
    yield table(rows)


def _alike(checks: Sequence[Check]) -> Iterator[list[Check]]:
    """Group permissions that are granted, and those that are not known; other checks stay alone."""
    taken: set[CheckState] = set()
    for check in checks:
        if check.topic is not Topic.PERMISSION or check.state is CheckState.MISSING:
            yield [check]
        elif check.state not in taken:
            taken.add(check.state)
            yield [one for one in checks if (one.topic, one.state) == (check.topic, check.state)]


def _remedies(readiness: Readiness) -> Iterator[str]:
    lacking = [check for check in readiness.missing if check.remedy]
    covered = [check for check in lacking if check.topic is Topic.PERMISSION] if readiness.grant else []
    rest = [check for check in lacking if check not in covered]
    if rest:
        yield "\nTo fix:"
    yield from (f"  {check.name}: {check.remedy}" for check in rest)
    if covered:
        count = counted(len(covered), "permission")
        yield f"\n{count} missing. Ask the account's administrator to add:\n{readiness.grant}"
    odd = [check for check in readiness.checks if check.state is CheckState.WARNING and check.remedy]
    if odd:
        yield "\nWorth changing:"
    yield from (f"  {check.name}: {check.remedy}" for check in odd)
    untold = [check for check in readiness.checks if check.state is CheckState.UNKNOWN and check.remedy]
    untold = [check for check in untold if check.topic is not Topic.PERMISSION]
    if untold:
        yield "\nTo find out what is not known:"
    yield from (f"  {check.name}: {check.remedy}" for check in untold)


def _next(readiness: Readiness, profile: Path | None) -> str:
    unknown = [check for check in readiness.checks if check.state is CheckState.UNKNOWN]
    untold = f" The result of {counted(len(unknown), 'check')} is not known." if unknown else ""
    again = " ".join(["orch doctor", readiness.cloud, *([shlex.quote(str(profile))] if profile else [])])
    if readiness.missing:
        return (
            f"Not ready: {len(readiness.missing)} missing.{untold}\nNext: fix what is missing, then: {again}"
        )
    if profile:
        return f"Ready.{untold}\nNext: orch up {shlex.quote(str(profile))}"
    return f"Ready.{untold}\nNext: {again} PROFILE    # also checks quota and image for its machine"


def _line(text: str) -> str:
    return " ".join(text.split())
