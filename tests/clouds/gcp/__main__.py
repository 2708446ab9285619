"""python -m tests.clouds.gcp [--port N] [--state DIR] [--set NAME=JSON]... [--shell]

Prints one JSON line (with --shell: export lines) of the environment to use; serves until SIGTERM, SIGINT or
the end of its standard input (with --shell: not that), then ends all its machines.
Settings: world.Settings. Scripting over HTTP: control.py.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
from pathlib import Path

from tests.clouds.announced import as_exports, as_json
from tests.clouds.gcp.server import Server
from tests.clouds.gcp.world import Settings


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.clouds.gcp", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0: any that is free")
    parser.add_argument("--state", type=Path, help="where machines are kept; default: a new folder")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=JSON", help="a setting")
    parser.add_argument("--shell", action="store_true", help="print export lines, and ignore standard input")
    given = parser.parse_args()
    settings = Settings(
        **{name: json.loads(value) for name, _, value in (s.partition("=") for s in given.set)}
    )
    state = given.state or Path(tempfile.mkdtemp(prefix="orch-gcp-"))
    server = Server(given.port, state, settings)
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    if not given.shell:
        threading.Thread(target=_await_end_of_input, args=(ended,), daemon=True).start()
    serving = threading.Thread(target=server.serve, daemon=True)
    serving.start()
    (as_exports if given.shell else as_json)(server.environment())
    ended.wait()
    server.stop()
    serving.join()
    if given.state is None:
        shutil.rmtree(state, ignore_errors=True)
    return 0


def _await_end_of_input(ended: threading.Event) -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    ended.set()


if __name__ == "__main__":
    sys.exit(main())
