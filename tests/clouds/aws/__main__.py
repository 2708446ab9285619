"""python -m tests.clouds.aws [--port 0] [--state DIR] [--set NAME=JSON]... [--shell]

Prints one JSON line (with --shell: export lines) of the environment to use, and serves until SIGTERM,
SIGINT or the end of its standard input (with --shell: not that); then ends all its machines.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from tests.clouds.announced import as_exports, as_json
from tests.clouds.aws.server import serve


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.clouds.aws", description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--state", type=Path, help="where its machines live; a temporary folder otherwise")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=JSON", help="see settings.py")
    parser.add_argument("--shell", action="store_true", help="print export lines, and ignore standard input")
    chosen = parser.parse_args()
    serve(
        chosen.port,
        chosen.state,
        dict(_setting(text) for text in chosen.set),
        as_exports if chosen.shell else as_json,
        until_stdin_ends=not chosen.shell,
    )


def _setting(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    return name, json.loads(value)


main()
