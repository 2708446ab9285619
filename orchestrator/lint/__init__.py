"""Find hazards in a project's source text: code that may fail or behave differently on another machine.

`check` takes texts and returns findings; it opens no file. A rule is data (`Rule`) and a function in `rules/`
that finds it; `RULES` contains all of them.
"""

from orchestrator.lint.check import Checked, Surroundings, check, without_info
from orchestrator.lint.checkpoints import checkpoint_folders
from orchestrator.lint.config import Config, Unknown, checked, from_pyproject, from_table
from orchestrator.lint.program import imports_of
from orchestrator.lint.registry import RULES
from orchestrator.lint.rule import Finding, Rule, Severity
from orchestrator.lint.source import language_of

__all__ = [
    "RULES",
    "Checked",
    "Config",
    "Finding",
    "Rule",
    "Severity",
    "Surroundings",
    "Unknown",
    "check",
    "checked",
    "checkpoint_folders",
    "from_pyproject",
    "from_table",
    "imports_of",
    "language_of",
    "without_info",
]
