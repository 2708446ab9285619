"""End a program early, as a success, with nothing left running."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

_GENERATED = "__autograph_generated_file"
"""Files into which TensorFlow writes the functions that it converts. It removes them at exit."""


RECORDS = ("observe.opened", "steps.clock")
"""Modules of the runtime that write a record when the process exits, by their `flush`."""


def exit_early() -> NoReturn:
    """Flush the output, remove TensorFlow's temporary files, and exit without running exit handlers."""
    try:
        _flush_records()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        _remove_generated()
    finally:
        os._exit(0)


def _flush_records() -> None:
    """Write what exit handlers write otherwise; os._exit skips them. One that fails does not stop others."""
    for name in RECORDS:
        module = sys.modules.get(f"{__package__}.{name}")
        if module is not None:
            try:
                module.flush()
            except Exception:
                pass


def _remove_generated() -> None:
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if name.startswith(_GENERATED) and path:
            try:
                os.remove(path)  # noqa: PTH107
            except OSError:
                pass
