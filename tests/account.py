"""What the tests cost: processor time and wall time of each file, summed up at the end of a run.

Counted is this process, what it waited for, and what tests/forked.py forked. Not counted are programs that
outlive whoever began them: machines, and the servers that fork.
"""

from __future__ import annotations

import csv
import os
import resource
from collections import defaultdict
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import forked

PROPERTY = "processor_s"
_DEAREST = 10


@dataclass
class Cost:
    """Seconds of the tests of one file: processor time, and wall time by phase."""

    tests: int = 0
    processor: float = 0.0
    setup: float = 0.0
    call: float = 0.0
    teardown: float = 0.0

    @property
    def wall(self) -> float:
        return self.setup + self.call + self.teardown


def processor_s() -> float:
    """Processor time until now, user and system, in seconds."""
    return sum(os.times()[:4]) + forked.used_s()


class Measuring:
    """In the process that runs tests: each report of a teardown has its test's processor time."""

    def __init__(self) -> None:
        self._before = (0.0, 0.0)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, Any, Any]:
        self._before = processor_s(), forked.used_s()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
        report = yield
        if call.when == "teardown":
            now = processor_s(), forked.used_s()
            used = [round(after - before, 3) for after, before in zip(now, self._before, strict=True)]
            report.user_properties.append((PROPERTY, used))
        return report


class Summing:
    """In the process that reports: the dearest files, and the sum.

    ORCH_TEST_ACCOUNT names a file to write: CSV with a line for each file of tests.
    """

    def __init__(self) -> None:
        self._costs: dict[str, Cost] = defaultdict(Cost)
        self._forked = 0.0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        cost = self._costs[report.nodeid.partition("::")[0]]
        if hasattr(cost, report.when):  # xdist has a phase of its own for a worker that died
            setattr(cost, report.when, getattr(cost, report.when) + report.duration)
        for name, used in report.user_properties:
            if name == PROPERTY and isinstance(used, list):
                cost.tests += 1
                cost.processor += used[0]
                self._forked += used[1]

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        dearest = sorted(self._costs.items(), key=lambda each: -each[1].processor)
        if os.environ.get("ORCH_TEST_ACCOUNT"):
            _write(Path(os.environ["ORCH_TEST_ACCOUNT"]), dearest)
        if len(dearest) > _DEAREST:
            terminalreporter.write_line("processor and wall seconds of the dearest files:")
            for file, cost in dearest[:_DEAREST]:
                terminalreporter.write_line(f"{cost.processor:8.1f} {cost.wall:8.1f}  {file}")
        # xdist has ended its workers by now
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        minutes = (sum(each.ru_utime + each.ru_stime for each in used) + self._forked) / 60
        terminalreporter.write_line(f"{minutes:.1f} minutes of processor time")


def _write(path: Path, costs: list[tuple[str, Cost]]) -> None:
    with path.open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(("file", "tests", "processor_s", "setup_s", "call_s", "teardown_s"))
        for name, cost in costs:
            seconds = (cost.processor, cost.setup, cost.call, cost.teardown)
            lines.writerow((name, cost.tests, *(f"{each:.2f}" for each in seconds)))
