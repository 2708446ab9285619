"""The runtime laid out in a folder, as it lies on a machine, for tests of what talks to it."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import orchestrator.runtime
from orchestrator.model import Agent

_ENTER = """\
import os, sys
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
{before}
from orchestrator_entry import main
sys.exit(main(sys.argv[1:]))
"""


def agent_at(base: Path, before: str = "") -> Agent:
    """An agent of this interpreter below `base`; `before` is Python run first, to break something."""
    root = base / "runtime"
    shutil.copytree(Path(orchestrator.runtime.__file__).parent, root / "orch_runtime")
    entry = f"{_ENTER}".replace("{before}", before).replace("orchestrator_entry", "orch_runtime.__main__")
    (root / "enter.py").write_text(entry)
    return Agent(sys.executable, str(root), str(base))
