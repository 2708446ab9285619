"""One bed of scenarios, which of them run, and the table at the end."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from orchestrator import stack
from tests.parity.bed import Bed
from tests.parity.judging import Row, judge, table
from tests.parity.scenarios.model import Scenario

PROPERTY = "scenario"
_HERE = Path(__file__).parent
_LOCKS = _HERE / "locks"

Judge = Callable[[Scenario], Row]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--parity-table", action="store_true", help="every scenario, and a table of them all")
    parser.addoption("--unconfirmed", action="store_true", help="compare recordings only, run nothing again")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The core alone, or for the table all but the core, which is part of the others."""
    whole = config.getoption("--parity-table", default=False)

    def runs(item: pytest.Item) -> bool:
        return _HERE not in item.path.parents or whole != (item.path.stem == "test_core")

    left_out = [item for item in items if not runs(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if runs(item)]


@pytest.fixture(scope="session")
def bed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    def python_of(environment: str) -> Path:
        if not environment:
            python: Path = request.getfixturevalue("tf_python")
            return python
        lock = stack.read_lock(_LOCKS / f"{environment}.lock")
        return stack.local_environment(lock, _LOCKS, None).python

    made = Bed(tmp_path_factory.mktemp("bed"), python_of)
    yield made
    made.close()


@pytest.fixture
def judged(bed: Bed, request: pytest.FixtureRequest) -> Judge:
    """Records both sides of a scenario, compares them, and says what of the verdict is wrong."""
    confirm = not request.config.getoption("--unconfirmed", default=False)

    def look(scenario: Scenario) -> Row:
        row = judge(scenario, bed.verdict(scenario, confirm=confirm), confirming=confirm)
        request.node.user_properties.append((PROPERTY, json.dumps(asdict(row))))
        return row

    return look


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if not config.getoption("--parity-table", default=False):
        return
    kinds = ("passed", "failed", "xfailed", "xpassed")
    reports = [r for kind in kinds for r in terminalreporter.stats.get(kind, [])]
    found = [value for r in reports for name, value in getattr(r, "user_properties", []) if name == PROPERTY]
    terminalreporter.write_line(table([Row(**json.loads(value)) for value in found]))
