"""End a program early, as a success, with nothing left running."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

_GENERATED = "__autograph_generated_file"
"""Files into which TensorFlow writes the functions that it converts. It removes them at exit."""


def exit_early() -> NoReturn:
    """Flush the output, remove TensorFlow's temporary files, and exit without running exit handlers."""
    try:
        _write_opened()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        _remove_generated()
    finally:
        os._exit(0)


def _write_opened() -> None:
    """Write the record of opened files, because os._exit skips the exit handler that does it otherwise."""
    opened = sys.modules.get(f"{__package__}.observe.opened")
    if opened is not None:
        opened.flush()


def _remove_generated() -> None:
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if name.startswith(_GENERATED) and path:
            try:
                os.remove(path)  # noqa: PTH107
            except OSError:
                pass
