"""Verb `gpus`: how many GPUs each framework lists, and why where these are fewer than wanted.

    gpus --want COUNT [--cuda MAJOR] FRAMEWORK...

It runs under the interpreter of the environment in question, with the variables of the job. The cause is
found by trying: the driver alone, the listing without LD_LIBRARY_PATH, each CUDA library by itself.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Dict, List, Optional, Tuple

_SAYS = "orch-gpus "
_LISTING = {
    "tensorflow": "import tensorflow\nfound = tensorflow.config.list_physical_devices('GPU')",
    "jax": "import jax\nfound = jax.devices('gpu')",
    "torch": "import torch\nfound = range(torch.cuda.device_count() if torch.cuda.is_available() else 0)",
}
_LIBRARIES = ("cudart", "nvJitLink", "cublasLt", "cublas", "cusparse", "cusolver", "cufft", "curand", "cudnn")
"""The CUDA libraries of the wheels that every framework loads; others need what a machine may lack."""

_GRAVE = re.compile(r"^[WEF]\d{4} |Error\b|Warning\b")
"""TensorFlow's and JAX's own levels (absl), and Python's."""

_LISTING_S = 300
_SHORT_S = 60
_MOST = 1000

HIDDEN = "hidden"
NO_DRIVER = "no-driver"
OLD_DRIVER = "old-driver"
DRIVER_FAILS = "driver-fails"
SHADOWED = "shadowed"
NO_LIBRARY = "no-library"
LIBRARY_FAILS = "library-fails"
FRAMEWORK_FAILS = "framework-fails"


def main(argv: List[str]) -> int:
    parser = argparse.ArgumentParser(prog="gpus")
    parser.add_argument("--want", type=int, required=True)
    parser.add_argument("--cuda", type=int, default=0)
    parser.add_argument("frameworks", nargs="+", choices=sorted(_LISTING))
    options = parser.parse_args(argv)
    json.dump(look(options.frameworks, options.want, options.cuda), sys.stdout)
    print()
    return 0


def look(frameworks: List[str], want: int, cuda: int) -> Dict[str, object]:
    """Return {listed: {framework: count}, framework, cause, detail}; the last three are "" if all list
    enough.
    """
    listed = {}  # type: Dict[str, int]
    for name in frameworks:
        listed[name], said = _listed(name, dict(os.environ))
        if listed[name] < want:
            cause, detail = _cause(name, want, cuda, said)
            return {"listed": listed, "framework": name, "cause": cause, "detail": detail[-_MOST:]}
    return {"listed": listed, "framework": "", "cause": "", "detail": ""}


def _listed(framework: str, environ: Dict[str, str]) -> Tuple[int, str]:
    """Return how many GPUs a framework lists in a process of its own, and the last line that it printed."""
    code = _LISTING[framework] + "\nprint(%r + str(len(found)))" % _SAYS
    environ = {**environ, "TF_CPP_MIN_LOG_LEVEL": "0"}
    status, out, said = _run([sys.executable, "-c", code], environ, _LISTING_S)
    counts = [line[len(_SAYS) :] for line in out.splitlines() if line.startswith(_SAYS)]
    if status == 0 and counts and counts[-1].isdigit():
        return int(counts[-1]), said
    return 0, said or "it ended with status %d" % status


def _run(argv: List[str], environ: Dict[str, str], seconds: int) -> Tuple[int, str, str]:
    """Return exit status, standard output, and the last line of standard error, a warning or error if there
    is one.
    """
    try:
        done = subprocess.run(
            argv,
            env=environ,
            cwd="/",
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return -1, "", "no answer within %d s" % seconds
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    grave = [line for line in lines if _GRAVE.search(line)]
    said = (grave or lines or [""])[-1].strip()
    return done.returncode, done.stdout.decode(errors="replace"), said


def _cause(framework: str, want: int, cuda: int, said: str) -> Tuple[str, str]:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if (
        visible is not None
        and len([one for one in visible.split(",") if one.strip() not in ("", "-1")]) < want
    ):
        return HIDDEN, visible
    driver = _driver(cuda)
    if driver:
        return driver
    path = os.environ.get("LD_LIBRARY_PATH")
    if path and _without_path(framework) >= want:
        return SHADOWED, path
    return _library(cuda) or (FRAMEWORK_FAILS, said)


def _without_path(framework: str) -> int:
    environ = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    return _listed(framework, environ)[0]


def _driver(cuda: int) -> Optional[Tuple[str, str]]:
    """Load and start the driver's own library; returns what is wrong with it, None if nothing is."""
    status, out, said = _run([sys.executable, __file__, "driver"], dict(os.environ), _SHORT_S)
    words = out.split()
    if status != 0 or len(words) != 2:
        return NO_DRIVER, said
    version, code = int(words[0]), int(words[1])
    if cuda and version and version // 1000 < cuda:
        return OLD_DRIVER, "%d.%d" % (version // 1000, version % 1000 // 10)
    return (DRIVER_FAILS, str(code)) if code else None


def _start_driver() -> None:
    """Print the driver's CUDA version (12040 is 12.4) and what cuInit returns."""
    library = ctypes.CDLL("libcuda.so.1")
    version = ctypes.c_int(0)
    library.cuDriverGetVersion(ctypes.byref(version))
    print(version.value, library.cuInit(0))


def _library(cuda: int) -> Optional[Tuple[str, str]]:
    """Return the first CUDA library of the wheels that cannot be loaded, or that there is none; None if all
    load.
    """
    folders = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
    files = [
        str(path)
        for name in _LIBRARIES
        for folder in folders
        for path in sorted(Path(folder).glob("nvidia/*/lib/lib%s.so*" % name))
    ]
    if not files:
        return (NO_LIBRARY, "") if cuda else None
    argv = [sys.executable, __file__, "libraries", *files]
    _, out, said = _run(argv, dict(os.environ), _SHORT_S)
    failed = out.strip().splitlines()
    return (LIBRARY_FAILS, failed[0] if failed else said) if failed or said else None


def _load(paths: List[str]) -> None:
    """Load all libraries, in any order that works; print the loader's message for the first that fails."""
    while paths:
        failed = {}  # type: Dict[str, str]
        for path in paths:
            try:
                ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
            except OSError as error:
                failed[path] = str(error)
        if len(failed) == len(paths):
            print(failed[paths[0]].splitlines()[0])
            return
        paths = list(failed)


if __name__ == "__main__":  # if a library crashes the process that loads it, only this one ends
    if sys.argv[1] == "driver":
        _start_driver()
    else:
        _load(sys.argv[2:])
