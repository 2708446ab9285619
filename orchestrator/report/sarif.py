"""Findings as SARIF 2.1.0, the format of code review tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from orchestrator.lint import RULES, Checked, Finding, Rule, Severity

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


def sarif(checked: Checked, version: str) -> Mapping[str, Any]:
    """One run of the tool. Every rule is listed, so that findings can refer to rules by index."""
    order = {rule: number for number, rule in enumerate(RULES)}
    driver = {
        "name": "orch lint",
        "semanticVersion": version,
        "rules": [_rule(rule) for rule in RULES.values()],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(each, order[each.rule]) for each in checked.findings],
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "name": "".join(word.capitalize() for word in rule.name.split("-")),
        "shortDescription": {"text": rule.sees},
        "fullDescription": {"text": rule.why},
        "help": {"text": rule.fix},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
    }


def _result(finding: Finding, index: int) -> dict[str, Any]:
    place: dict[str, Any] = {
        "physicalLocation": {
            "artifactLocation": {"uri": quote(finding.path)},
            "region": {"startLine": finding.line, "startColumn": finding.column},
        }
    }
    if finding.cell:
        place["logicalLocations"] = [{"name": f"cell {finding.cell}", "kind": "module"}]
    return {
        "ruleId": finding.rule,
        "ruleIndex": index,
        "level": _LEVELS[finding.severity],
        "message": {"text": f"{finding.message}. {finding.why} {finding.fix}"},
        "locations": [place],
    }
