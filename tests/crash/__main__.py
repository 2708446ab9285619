"""python -m tests.crash N: kill each verb at N of its points, spread over all of them; print the table."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.crash.rig import rig
from tests.crash.sweep import SWEEPS, Kill, sweep, table


def main() -> int:
    wanted = max(2, int(sys.argv[1]))
    kills: list[Kill] = []
    for verb in SWEEPS:
        with tempfile.TemporaryDirectory(prefix="orch-crash-") as folder, rig(Path(folder)) as project:
            for kill in sweep(project, verb, wanted):
                kills.append(kill)
                print(f"{verb} {kill.number} before {kill.before[:90]}", file=sys.stderr)
    print(table(kills))
    for kill in kills:
        if not kill.sound:
            print(kill)
    return int(not all(kill.sound for kill in kills))


if __name__ == "__main__":
    sys.exit(main())
