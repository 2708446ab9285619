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
from tests.parity.judging import Row, judge, line, sums
from tests.parity.scenarios.model import Scenario

PROPERTY = "scenario"
_LOCKS = Path(__file__).parent / "locks"

Judge = Callable[[Scenario], Row]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--parity-table", action="store_true", help="every scenario, and a table of them all")
    parser.addoption("--unconfirmed", action="store_true", help="compare recordings only, run nothing again")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The core alone, or for the table all but the core, which is part of the others."""
    whole = config.getoption("--parity-table", default=False)

    def runs(item: pytest.Item) -> bool:
        name = item.nodeid  # for each of the suite's tests: a path is slow to compare
        return not name.startswith("tests/parity/") or whole != name.startswith("tests/parity/test_core.py::")

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


def _row(report: pytest.TestReport) -> Row | None:
    found = [value for name, value in report.user_properties if name == PROPERTY]
    return Row(**json.loads(str(found[0]))) if found else None


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--parity-table", default=False):
        config.pluginmanager.register(Telling(config))


class Telling:
    """Prints what was said of each scenario as soon as that is known, and the sums at the end."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._rows: list[Row] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        row = _row(report) if report.when == "call" else None
        if row:
            self._rows.append(row)
            terminal: Any = self._config.pluginmanager.get_plugin("terminalreporter")
            terminal.ensure_newline()
            terminal.write_line(line(row))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        terminalreporter.write_line(sums(self._rows))
