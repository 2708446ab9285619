"""Facts of this computer, as strings by name: only what can be read quickly, and nothing secret.

An unknown fact is absent; nothing is guessed.
"""

from __future__ import annotations

import ast
import locale
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from typing import Dict, List, Mapping, Optional, Sequence

from ..acting import acting
from .probe import libc, markers


def environment(environ: Mapping[str, str]) -> Dict[str, str]:
    """Return the variables that change results or text; one that looks like a secret as "(set)"."""
    return acting(environ)


def facts() -> Dict[str, str]:
    """Return interpreter, C library, system, processor, limits, GPU, time zone and language."""
    found = {
        **_interpreter(),
        **_system(),
        **_processor(),
        **_limits(),
        **_gpu(),
        **_time_and_language(),
        **{"marker." + name: value for name, value in markers().items()},
    }
    return {name: value for name, value in found.items() if value}


def _interpreter() -> Dict[str, str]:
    return {
        "python": platform.python_version(),
        "implementation": sys.implementation.name,
        "build": " ".join(sys.version.split()),
        "executable": sys.executable,
        "prefix": sys.prefix,
    }


def _system() -> Dict[str, str]:
    return {
        "libc": libc() or " ".join(platform.libc_ver()).strip(),
        "os": _os_name(),
        "kernel": platform.release(),
        "system": platform.system(),
        "machine": platform.machine(),
    }


def _os_name() -> str:
    match = re.search(r'^PRETTY_NAME="?([^"\n]+)', _read("/etc/os-release"), re.MULTILINE)
    return match.group(1) if match else platform.platform(terse=True)


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""


def _processor() -> Dict[str, str]:
    text = _read("/proc/cpuinfo")
    model = re.search(r"^(?:model name|Model|cpu model)\s*:\s*(.+)$", text, re.MULTILINE)
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", text, re.MULTILINE)
    return {
        "cpu_model": model.group(1).strip() if model else platform.processor(),
        "cpu_flags": " ".join(sorted(flags.group(1).split())) if flags else "",
        "cpus": str(os.cpu_count() or ""),
        "threads": str(len(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else "",
    }


def _limits() -> Dict[str, str]:
    """Return limits of the control group: "cpu_limit" in processors, "memory_limit" in bytes; absent:
    unlimited.
    """
    memory = _first_number("memory.max", "memory/memory.limit_in_bytes", "memory.limit_in_bytes")
    quota = _group_file("cpu.max").split() or [
        _group_file("cpu/cpu.cfs_quota_us"), _group_file("cpu/cpu.cfs_period_us"),
    ]  # fmt: skip
    return {
        "memory_limit": str(memory) if memory and memory < 1 << 60 else "",
        "cpu_limit": _ratio(quota),
        "memory": str(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")),
    }


def _ratio(quota: Sequence[str]) -> str:
    numbers = [int(part) for part in quota if part.strip().isdigit()]
    return "%g" % (numbers[0] / numbers[1]) if len(numbers) == 2 and numbers[1] else ""


def _first_number(*names: str) -> Optional[int]:
    for name in names:
        text = _group_file(name)
        if text.isdigit():
            return int(text)
    return None


def _group_file(name: str) -> str:
    """Return a control file of this process's group: version 2 ("cpu.max") or 1 ("cpu/cpu.cfs_quota_us")."""
    controller, _, leaf = name.rpartition("/")
    for line in _read("/proc/self/cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controller and controller in controllers.split(","):
            folder = "/sys/fs/cgroup/" + controller
        elif not controller and not controllers:
            folder = "/sys/fs/cgroup"
        else:
            continue
        for base in (folder + path, folder):
            text = _read("%s/%s" % (base.rstrip("/"), leaf)).strip()
            if text:
                return text
    return ""


def _gpu() -> Dict[str, str]:
    text = _read("/proc/driver/nvidia/version")
    match = re.search(r"Kernel Module(?: for \S+)?\s+(\d[\d.]+)", text)
    found = {"driver": match.group(1) if match else ""}
    if shutil.which("nvidia-smi"):
        found.update(_nvidia_smi())
    return found


def _nvidia_smi() -> Dict[str, str]:
    rows = _output("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader")
    if not rows:
        return {}
    cells = [[cell.strip() for cell in row.split(",")] for row in rows.splitlines() if row.strip()]
    cuda = re.search(r"CUDA Version:\s*([\d.]+)", _output("nvidia-smi"))
    return {
        "gpu": "; ".join(row[0] for row in cells),
        "driver": cells[0][1] if len(cells[0]) > 1 else "",
        "gpu_memory": "; ".join(row[2] for row in cells if len(row) > 2),
        "cuda": cuda.group(1) if cuda else "",
    }


def _output(*argv: str) -> str:
    try:
        done = subprocess.run(
            argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=15, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace") if done.returncode == 0 else ""


def _time_and_language() -> Dict[str, str]:
    return {
        "timezone": "/".join(time.tzname),
        "locale": locale.setlocale(locale.LC_CTYPE, None) or "",
        "encoding": sys.getfilesystemencoding(),
    }


def tensorflow_build(path: Sequence[str]) -> Dict[str, str]:
    """Return how TensorFlow was built, from its own text file, without importing it."""
    for root in path:
        found = _build_info(_read(root + "/tensorflow/python/platform/build_info.py"))
        if found:
            return found
    return {}


def _build_info(text: str) -> Dict[str, str]:
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return {}
    found = {}  # type: Dict[str, str]
    for node in ast.walk(tree):
        if isinstance(node, ast.Tuple):
            pair = _constants(node.elts)
            if len(pair) == 2:
                found["tensorflow." + pair[0]] = pair[1]
    return found


def _constants(nodes: Sequence[ast.expr]) -> List[str]:
    values = [node for node in nodes if isinstance(node, ast.Constant)]
    return [_text(node.value) for node in values] if len(values) == len(nodes) else []


def _text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
