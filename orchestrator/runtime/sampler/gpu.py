"""Sample the GPUs, by NVIDIA's library or else its program; nothing if there is none."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Set

from .nvml import LIBRARY, Nvml

if TYPE_CHECKING:
    import subprocess

_FIELDS = "index,name,utilization.gpu,utilization.memory,memory.used,memory.total"


class GpuMeter:
    """Use the library if it can be loaded: it needs no process, and reports power and throttling too.

    Otherwise use one nvidia-smi that prints a line per GPU and second during the run.
    """

    def __init__(self, library: str = LIBRARY) -> None:
        self._nvml = _library(library)
        self._smi = None if self._nvml else _Printing()
        self.names: List[str] = self._nvml.names if self._nvml else self._smi.names if self._smi else []

    @property
    def pids(self) -> Set[int]:
        return self._smi.pids if self._smi else set()

    def read(self) -> Optional[List[Dict[str, Any]]]:
        """Return for each GPU: utilisation and memory utilisation (0..1), memory in bytes; from the library
        also power (W), temperature (°C) and the reasons for throttling. None without a GPU.
        """
        if self._nvml:
            return self._nvml.read() or None
        return self._smi.read() if self._smi else None

    def close(self) -> None:
        if self._nvml:
            self._nvml.close()
        if self._smi:
            self._smi.close()


def _library(name: str) -> Optional[Nvml]:
    try:
        return Nvml(name)
    except OSError:
        return None


class _Printing:
    """A running nvidia-smi, if that program exists."""

    def __init__(self) -> None:
        self._process = _start()
        self._rest = b""
        self._last: List[Dict[str, Any]] = []
        self.names = _names()

    @property
    def pids(self) -> Set[int]:
        return {self._process.pid} if self._process else set()

    def read(self) -> Optional[List[Dict[str, Any]]]:
        """Return for each GPU: utilisation and memory utilisation (0..1, the mean since the last call),
        memory in bytes. None without a GPU; the last known facts if nothing new was printed.
        """
        if self._process is None or self._process.stdout is None:
            return None
        try:
            while True:
                block = os.read(self._process.stdout.fileno(), 1 << 16)
                if not block:
                    break
                self._rest += block
        except BlockingIOError:
            pass
        complete, _, self._rest = self._rest.rpartition(b"\n")
        self._last = parse(complete.decode(errors="replace")) or self._last
        return self._last or None

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def parse(text: str) -> List[Dict[str, Any]]:
    """Parse lines of nvidia-smi (csv, no header, no units) to one fact per GPU; N/A becomes None."""
    lines: Dict[str, List[List[str]]] = {}
    for line in text.splitlines():
        fields = [part.strip() for part in line.split(",")]
        if len(fields) == len(_FIELDS.split(",")) and fields[0].isdigit():
            lines.setdefault(fields[0], []).append(fields)
    return [
        {
            "utilisation": _mean(seen, 2, 100),
            "memory_utilisation": _mean(seen, 3, 100),
            "memory": _last(seen, 4),
            "memory_total": _last(seen, 5),
        }
        for _, seen in sorted(lines.items(), key=lambda item: int(item[0]))
    ]


def _mean(seen: List[List[str]], column: int, whole: int) -> Optional[float]:
    values = [int(fields[column]) for fields in seen if fields[column].isdigit()]
    return round(sum(values) / len(values) / whole, 3) if values else None


def _last(seen: List[List[str]], column: int) -> Optional[int]:
    text = seen[-1][column]
    return int(text) << 20 if text.isdigit() else None


def _command() -> Optional[List[str]]:
    program = shutil.which("nvidia-smi")
    return [program, f"--query-gpu={_FIELDS}", "--format=csv,noheader,nounits"] if program else None


def _names() -> List[str]:
    command = _command()
    if command is None:
        return []
    import subprocess  # late: every supervisor imports this module, few lack NVIDIA's library alone

    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    lines = done.stdout.decode(errors="replace").splitlines()
    return [line.split(",")[1].strip() for line in lines if line.count(",") == _FIELDS.count(",")]


def _start() -> Optional[subprocess.Popen[bytes]]:
    command = _command()
    if command is None:
        return None
    import subprocess

    try:
        process = subprocess.Popen(
            [*command, "--loop=1"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
        )
    except OSError:
        return None
    if process.stdout is not None:
        os.set_blocking(process.stdout.fileno(), False)
    return process
