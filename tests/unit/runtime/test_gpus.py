"""Which GPUs an environment lists, and why too few: tried with look-alikes of driver and packages."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchestrator.runtime.attest.gpus import _LISTING
from orchestrator.stack.runtime_files import lay_out

TORCH = """
import os, sys

class cuda:
    @staticmethod
    def is_available():
        return True

    @staticmethod
    def device_count():
        sys.stderr.write("UserWarning: no kernel image\\nnothing else to report\\n")
        return 0 if "shadow" in os.environ.get("LD_LIBRARY_PATH", "") else int(os.environ["TORCH_GPUS"])
"""
TENSORFLOW = """
import os

class config:
    @staticmethod
    def list_physical_devices(kind):
        assert kind == "GPU"
        return ["gpu"] * int(os.environ["TORCH_GPUS"])
"""
JAX = """
import os

def devices(kind):
    if os.environ["TORCH_GPUS"] == "0":
        raise RuntimeError("Unknown backend: 'gpu' requested, but no platforms are present")
    return ["gpu"] * int(os.environ["TORCH_GPUS"])
"""
DRIVER = """
int cuDriverGetVersion(int *version) { *version = VERSION; return 0; }
int cuInit(unsigned int flags) { return CODE; }
"""


@dataclass(frozen=True)
class Machine:
    """An environment with look-alikes; `driver` makes the library of one."""

    python: Path
    folder: Path

    @property
    def site(self) -> Path:
        return next((self.python.parent.parent / "lib").glob("python3*/site-packages"))

    def driver(self, version: int, code: int = 0) -> Path:
        folder = self.folder / f"driver-{version}-{code}"
        library(folder / "libcuda.so.1", DRIVER.replace("VERSION", str(version)).replace("CODE", str(code)))
        return folder

    def cuda(self, name: str, source: str | None) -> None:
        """A library as a wheel brings it; without source, no library at all."""
        path = self.site / "nvidia" / name / "lib" / f"lib{name}.so.9"
        if source is None:
            path.parent.mkdir(parents=True)
            path.write_text("not a library")
        else:
            library(path, source)

    def look(self, *frameworks: str, want: int = 1, cuda: int = 12, **variables: str) -> dict[str, Any]:
        environ = {"PATH": os.environ["PATH"], "TORCH_GPUS": "0", **variables}
        argv = [str(self.python), "-I", str(lay_out(self.folder) / "enter.py"), "gpus"]
        argv += ["--want", str(want), "--cuda", str(cuda), *frameworks]
        done = subprocess.run(argv, env=environ, capture_output=True, check=True, timeout=300)
        found: dict[str, Any] = json.loads(done.stdout)
        return found


def library(path: Path, source: str) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler on this computer makes a look-alike of a library")
    path.parent.mkdir(parents=True, exist_ok=True)
    argv = [compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", str(path)]
    subprocess.run(argv, input=source.encode(), check=True, capture_output=True)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True, timeout=120)
    made = Machine(tmp_path / "env/bin/python", tmp_path)
    for name, text in (("torch", TORCH), ("tensorflow", TENSORFLOW), ("jax", JAX)):
        (made.site / f"{name}.py").write_text(text)
    return made


def test_every_framework_is_asked_in_its_own_way(machine: Machine) -> None:
    found = machine.look(*sorted(_LISTING), want=2, TORCH_GPUS="2")
    assert found == {
        "listed": {"jax": 2, "tensorflow": 2, "torch": 2},
        "framework": "",
        "cause": "",
        "detail": "",
    }


def cause(found: dict[str, Any]) -> tuple[str, str, str]:
    return found["framework"], found["cause"], found["detail"]


def test_gpus_that_the_job_hides_itself(machine: Machine) -> None:
    assert cause(machine.look("jax", CUDA_VISIBLE_DEVICES="-1")) == ("jax", "hidden", "-1")
    assert machine.look("jax", want=2, CUDA_VISIBLE_DEVICES="0", TORCH_GPUS="1")["cause"] == "hidden"


def test_a_driver_s_library_that_does_not_load(machine: Machine) -> None:
    broken = machine.folder / "broken"
    broken.mkdir()
    (broken / "libcuda.so.1").write_text("no library")
    framework, why, detail = cause(machine.look("tensorflow", LD_LIBRARY_PATH=str(broken)))
    assert (framework, why) == ("tensorflow", "no-driver")
    assert "libcuda.so.1" in detail


@pytest.mark.parametrize(
    ("version", "code", "expected"),
    [
        (11040, 0, ("old-driver", "11.4")),
        (12040, 803, ("driver-fails", "803")),
        (11040, 100, ("old-driver", "11.4")),
    ],
)
def test_a_driver_that_is_too_old_or_does_not_start(
    machine: Machine, version: int, code: int, expected: tuple[str, str]
) -> None:
    found = machine.look("torch", LD_LIBRARY_PATH=str(machine.driver(version, code)))
    assert cause(found) == ("torch", *expected)


def test_libraries_of_the_image_before_those_of_the_wheels(machine: Machine) -> None:
    path = f"{machine.driver(12080)}:/opt/shadow"
    assert cause(machine.look("torch", LD_LIBRARY_PATH=path, TORCH_GPUS="1")) == ("torch", "shadowed", path)


def test_no_library_one_that_fails_and_none_that_fails(machine: Machine) -> None:
    path = str(machine.driver(12080))
    assert cause(machine.look("torch", LD_LIBRARY_PATH=path)) == ("torch", "no-library", "")
    needed = "int cublas_needs(void); int f(void) { return cublas_needs(); }"
    machine.cuda("cublasLt", "int cublas_needs(void) { return 1; }")
    machine.cuda("cublas", needed)
    found = cause(machine.look("torch", LD_LIBRARY_PATH=path))
    assert found == ("torch", "framework-fails", "UserWarning: no kernel image")
    machine.cuda("cudnn", None)
    framework, why, detail = cause(machine.look("torch", LD_LIBRARY_PATH=path))
    assert (framework, why) == ("torch", "library-fails")
    assert "libcudnn.so.9" in detail
