"""The account of what the tests cost."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT


def test_each_file_has_its_line_and_what_it_forked_counts(tmp_path: Path) -> None:
    """`orch --help` as a fork: without its time, this file's would be that of a few calls."""
    account = tmp_path / "account.csv"
    tried = tmp_path / "test_tried.py"
    tried.write_text(
        "from tests import forked\nfrom tests.forked_orch import orch\n\n"
        "def test_forks():\n    assert orch('--help').returncode == 0\n    assert forked.used_s() > 0\n\n"
        "def test_nothing():\n    pass\n"
    )
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider", tried],
        cwd=ROOT, env={**environ, "ORCH_TEST_ACCOUNT": str(account)}, check=True, timeout=240,
    )  # fmt: skip
    (line,) = csv.DictReader(account.open())
    assert line["file"].endswith("test_tried.py")
    assert line["tests"] == "2"
    assert float(line["processor_s"]) > 0


def test_a_worker_that_dies_is_a_failed_test_and_no_end_of_the_run(tmp_path: Path) -> None:
    tried = tmp_path / "test_tried.py"
    tried.write_text(
        "import os, signal\n\n"
        "def test_dies():\n    os.kill(os.getpid(), signal.SIGKILL)\n\n"
        "def test_lives():\n    pass\n"
    )
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    options = ("-q", "-p", "tests.conftest", "-p", "no:cacheprovider", "-n", "1", "--dist", "loadscope")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, tried],
        cwd=ROOT, env=environ, check=False, timeout=240, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout
    assert "test_dies" in done.stdout.split("short test summary")[1]
    assert "INTERNALERROR" not in done.stdout + done.stderr
