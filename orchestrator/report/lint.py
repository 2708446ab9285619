"""Format lint findings: grouped by file, one line each."""

from __future__ import annotations

from itertools import groupby

from orchestrator.lint import Checked, Severity
from orchestrator.model.counted import counted


def lint_text(checked: Checked) -> str:
    """List the findings, with reason and fix at the first finding of each rule, and a count at the end."""
    lines: list[str] = []
    said: set[str] = set()
    for path, group in groupby(checked.findings, key=lambda each: each.path):
        lines.append(path)
        for each in group:
            cell = f"cell {each.cell}:" if each.cell else ""
            lines.append(f"  {cell}{each.line}:{each.column} {each.severity} {each.rule} {each.message}")
            lines += [f"      {text}" for text in (each.why, each.fix) if text not in said]
            said |= {each.why, each.fix}
    return "\n".join([*lines, _count(checked)])


def _count(checked: Checked) -> str:
    found = [(checked.count(severity), severity.value) for severity in Severity]
    parts = [counted(count, word) for count, word in found if count]
    silenced = f"; {checked.silenced} silenced" if checked.silenced else ""
    files = counted(checked.files, "file")
    return f"{', '.join(parts) or 'No hazards'} in {files}{silenced}."
