"""`values.py NAME…`: one JSON object, name → digest of what a pickle holds, whatever its bytes are.

Two pickles of equal values can differ in their bytes: objects that were loaded are shared otherwise. It runs
in the interpreter of the job, on files that this job has just written in a copy of its folder.
"""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import sys
from pathlib import Path
from typing import Dict, List

SUFFIXES = (".pkl", ".pickle")


def main(names: List[str]) -> int:
    found: Dict[str, str] = {}
    for name in names:
        try:
            found[name] = _digest(Path(name))
        except Exception:  # then its bytes are compared
            continue
    print(json.dumps(found))
    return 0


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        content = pickle.load(file)  # the job's own, written by it a moment ago
    written = io.BytesIO()
    pickler = pickle.Pickler(written, protocol=4)
    pickler.fast = True  # no references: equal values, equal bytes
    pickler.dump(content)
    return hashlib.sha256(written.getvalue()).hexdigest()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
