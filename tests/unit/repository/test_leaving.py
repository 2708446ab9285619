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
