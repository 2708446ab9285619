"""The table of rules, and the checks that find them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from orchestrator.lint.module import Module
from orchestrator.lint.program import Program
from orchestrator.lint.rule import Hit, Rule
from orchestrator.lint.source import Snippet


@dataclass(frozen=True)
class Project:
    """All texts of one check. `gpu`: the profile asks for a GPU; `variables`: those that the profile sets.

    `locked`: folders whose packages are pinned by a lock with hashes. `unsent`: variables that are set here
    and that a run does not get, each with what to add to the profile.
    """

    programs: tuple[Program, ...]
    snippets: tuple[Snippet, ...]
    gpu: bool = False
    variables: frozenset[str] = frozenset()
    locked: frozenset[str] = frozenset()
    unsent: Mapping[str, str] = field(default_factory=dict)

    @property
    def modules(self) -> list[Module]:
        return [module for program in self.programs for module in program.modules]


ModuleCheck = Callable[[Module], Iterator[Hit]]
ProgramCheck = Callable[[Program, Project], Iterator[Hit]]
SnippetCheck = Callable[[Snippet, Project], Iterator[Hit]]
ProjectCheck = Callable[[Project], Iterator[Hit]]
Check = TypeVar("Check", bound=Callable[..., Iterator[Hit]])

RULES: dict[str, Rule] = {}
module_checks: list[ModuleCheck] = []
program_checks: list[ProgramCheck] = []
snippet_checks: list[SnippetCheck] = []
project_checks: list[ProjectCheck] = []


def register(rules: Sequence[Rule]) -> None:
    """Add rules to the table. Ids and names must be unique."""
    names = {rule.name for rule in RULES.values()}
    for rule in rules:
        assert rule.id not in RULES and rule.name not in names, rule
        RULES[rule.id] = rule
        names.add(rule.name)


def _adds(to: list[Check], *rules: Rule) -> Callable[[Check], Check]:
    register(rules)

    def add(check: Check) -> Check:
        to.append(check)
        return check

    return add


def module_check(*rules: Rule) -> Callable[[ModuleCheck], ModuleCheck]:
    """Register a check of each Python text by itself."""
    return _adds(module_checks, *rules)


def program_check(*rules: Rule) -> Callable[[ProgramCheck], ProgramCheck]:
    """Register a check of modules that run together."""
    return _adds(program_checks, *rules)


def snippet_check(*rules: Rule) -> Callable[[SnippetCheck], SnippetCheck]:
    """Register a check of each text of any language."""
    return _adds(snippet_checks, *rules)


def project_check(*rules: Rule) -> Callable[[ProjectCheck], ProjectCheck]:
    """Register a check of everything at once."""
    return _adds(project_checks, *rules)
