"""This computer's name, and whether the program asks for it; if not, another name is no difference."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Dict, Iterable

_ASKS = re.compile(rb"\b(gethostname|getfqdn|uname|nodename|platform\.node|platform import node)\b")


def host(files: Iterable[Path]) -> Dict[str, Any]:
    """Return `name`, and `asked`: whether one of the program's own files seems to ask for it."""
    return {"name": os.uname().nodename, "asked": any(_asks(path) for path in files)}


def _asks(path: Path) -> bool:
    try:
        return path.suffix == ".py" and _ASKS.search(path.read_bytes()) is not None
    except OSError:
        return False
