"""Programs that are ended early leave nothing behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT

PROGRAM = """
import atexit, importlib.util, sys
from orch_runtime.leaving import exit_early
atexit.register(print, "an exit handler")
for path in sys.argv[1:]:
    spec = importlib.util.spec_from_file_location(path.rpartition("/")[2][:-3], path)
    sys.modules[spec.name] = importlib.util.module_from_spec(spec)
print("said")
exit_early()
"""


def test_what_tensorflow_generated_is_removed_and_what_was_printed_is_seen(tmp_path: Path) -> None:
    (tmp_path / "orch_runtime").symlink_to(ROOT / "orchestrator" / "runtime")
    generated, own = tmp_path / "__autograph_generated_file1x.py", tmp_path / "own.py"
    generated.touch(), own.touch()
    command = [sys.executable, "-c", PROGRAM, generated, own]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "said\n"
    assert not generated.exists() and own.exists()


RECORDING = """
import importlib, sys
from orch_runtime import leaving
for name in leaving.RECORDS:
    module = importlib.import_module(f"orch_runtime.{name}")
    module.flush = lambda name=name: print("written:", name)
broken = importlib.import_module(f"orch_runtime.{leaving.RECORDS[0]}")
broken.flush = lambda: 1 / 0
leaving.exit_early()
"""


def test_records_that_exit_handlers_write_are_written(tmp_path: Path) -> None:
    """By modules that are there under these names, and whatever happens to the other ones."""
    (tmp_path / "orch_runtime").symlink_to(ROOT / "orchestrator" / "runtime")
    command = [sys.executable, "-c", RECORDING]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "written: steps.clock\n"
