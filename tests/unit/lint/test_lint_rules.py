"""Every rule finds what it says it sees, in many spellings, and finds nothing in programs without hazards."""

from __future__ import annotations

import pytest

from orchestrator.lint import RULES
from tests.unit.lint_blocks import Block, blocks_of

HAZARDS = [*blocks_of("lint_cases/rules.md"), *blocks_of("lint_cases/variants.md")]
CLEAN = blocks_of("lint_clean/scripts.md")
# These need more than one file: test_lint_project.py has them.
TOGETHER = {"ORC504", "ORC604", "ORC802", "ORC803", "ORC805", "ORC824", "ORC902"}


@pytest.mark.parametrize("block", HAZARDS, ids=str)
def test_a_hazard_is_found(block: Block) -> None:
    lines = block.lines(block.heading)
    assert lines, f"not found, but {[(each.rule, each.line) for each in block.checked().findings]}"
    assert set(block.marked) <= lines, f"it is found at lines {sorted(lines)}"


def test_every_rule_has_an_example() -> None:
    assert {block.heading for block in HAZARDS} | TOGETHER == set(RULES)


@pytest.mark.parametrize("block", CLEAN, ids=str)
def test_a_clean_program_gets_no_finding(block: Block) -> None:
    assert [f"{each.line}: {each.rule} {each.message}" for each in block.checked().findings] == []
