"""Fold the lines that TensorFlow logs while it starts."""

from __future__ import annotations

import re

from orchestrator.model.counted import counted

_DIGIT = re.compile(rb"[0-9]")

_PREFIXES = (
    b"WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
    b"I0000 00:00:0000000000.000000",
    b"0000-00-00 00:00:00.000000: I tensorflow/",
    b"0000-00-00 00:00:00.000000: I external/",
    b"To enable the following instructions:",
)
"""Starts of lines, with 0 for every digit."""

_TWICE = re.compile(rb"^(E0000 |0000-00-00 00:00:00.000000: E ).*Unable to register cu(FFT|DNN|BLAS) factory")
"""TensorFlow logs these at every start with CUDA, because its libraries register them twice."""
_TWICE_PREFIXES = (b"E0000 00:00:0000000000.000000", b"0000-00-00 00:00:00.000000: E ")

_GPU = b"Created device"
"""A line with this text names the GPU that is used, and is kept."""

_LONGEST = 4096


class Folded:
    """Filter output piece by piece: replace start-up lines by one line with their number."""

    def __init__(self) -> None:
        self._begun = b""
        self._left_out = 0

    def piece(self, data: bytes) -> bytes:
        *whole, begun = (self._begun + data).split(b"\n")
        shown = b"".join(self._line(line + b"\n") for line in whole)
        self._begun = begun if _may_be(begun) else b""
        return shown + (self._told() + begun if begun and not self._begun else b"")

    def rest(self) -> bytes:
        """Return the buffered incomplete line, after the last piece."""
        begun, self._begun = self._begun, b""
        return self._told() + begun

    def _line(self, line: bytes) -> bytes:
        if _is_startup(line):
            self._left_out += 1
            return b""
        return self._told() + line

    def _told(self) -> bytes:
        count, self._left_out = self._left_out, 0
        return f"({counted(count, 'start-up line')} of TensorFlow: see the log)\n".encode() if count else b""


def _is_startup(line: bytes) -> bool:
    plain = _DIGIT.sub(b"0", line)
    if plain.startswith(_PREFIXES):
        return _GPU not in line
    return bool(_TWICE.match(plain))


def _may_be(begun: bytes) -> bool:
    """Return whether the incomplete line may become one of the folded lines."""
    plain = _DIGIT.sub(b"0", begun)
    starts = any(
        prefix.startswith(plain) or plain.startswith(prefix) for prefix in (*_PREFIXES, *_TWICE_PREFIXES)
    )
    return bool(begun) and len(begun) <= _LONGEST and starts
