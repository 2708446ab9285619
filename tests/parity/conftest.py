"""One bed of scenarios for each file of tests, and the table at the end."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.parity.bed import Bed
from tests.parity.judging import Row, judge, table
from tests.parity.scenarios.model import Scenario

PROPERTY = "scenario"
_IN_MEMORY = Path("/dev/shm")

Judge = Callable[[Scenario], Row]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--parity-table", action="store_true", help="print what was said of each scenario")
    parser.addoption("--unconfirmed", action="store_true", help="compare recordings only, run nothing again")


@pytest.fixture(scope="module")
def bed(tf_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """In memory where that is possible: it is quick, and lists folders in the order of their writing."""
    usable = _IN_MEMORY.is_dir() and os.access(_IN_MEMORY, os.W_OK)
    root = Path(tempfile.mkdtemp(dir=_IN_MEMORY)) if usable else tmp_path_factory.mktemp("bed")
    made = Bed(root, tf_python)
    yield made
    made.close()
    shutil.rmtree(root, ignore_errors=True)


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
    reports = [r for key in ("passed", "failed") for r in terminalreporter.stats.get(key, [])]
    found = [value for r in reports for name, value in getattr(r, "user_properties", []) if name == PROPERTY]
    terminalreporter.write_line(table([Row(**json.loads(value)) for value in found]))
