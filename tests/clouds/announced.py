"""How a test cloud says which environment to use."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping


def as_json(environment: Mapping[str, str]) -> None:
    print(json.dumps(dict(environment)), flush=True)


def as_exports(environment: Mapping[str, str]) -> None:
    """Print lines for a shell, all at once."""
    lines = (f"export {name}={shlex.quote(value)}" for name, value in environment.items())
    print("\n".join(lines), flush=True)
