"""What `orch doctor` found, as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.report.units import table

_TIERS = {
    "netns": "a machine of its own: file system, network, processes, limits",
    "userns": "a machine of its own without root: some limits are lost",
    "process": "an sshd of its own on this system: no isolation",
}


def doctor_text(found: Mapping[str, Any]) -> str:
    tier = found.get("tier")
    lines = [f"local machines: {tier}: {_TIERS.get(str(tier), 'none can be made here')}"]
    lines += [f"  lost: {each}" for each in found.get("lost") or ()]
    lines += [f"  missing: {each}" for each in found.get("missing") or ()]
    if found.get("fix"):
        lines.append(f"  Next: {found['fix']}")
    rows = [["check", "", "detail"]]
    rows += [[c["name"], "ok" if c["ok"] else "NO", c["detail"]] for c in found["checks"]]
    return "\n".join([*lines, "", table(rows)])
