"""Which files and modules a recording lists, and what they are called."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.reads.opened import Opened, read_opened
from orchestrator.runtime.observe.files import Files
from orchestrator.runtime.observe.project import module_files, outside, project_modules, roots, sha256
from orchestrator.runtime.observe.surroundings import surroundings
from tests.unit.far_side import agent_at


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder in memory, where this computer has such."""
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("no /dev/shm here")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


def listed(files: Files) -> list[str]:
    return [entry["path"] for entry in files.gather()["list"]]


def test_data_in_memory_is_listed_and_devices_are_not(memory: Path, tmp_path: Path) -> None:
    files = Files(str(tmp_path / "observe"))
    (memory / "data.bin").write_bytes(b"data")
    files.named([memory / "data.bin", "/dev/null", "/proc/self/status"])
    assert listed(files) == [str(memory / "data.bin")]


def test_a_temporary_file_is_data_unless_the_program_made_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    files = Files(str(tmp_path / "observe"))
    for name in ("given", "made"):
        (tmp_path / name).write_text(name)
    files.made([tmp_path / "made"])
    files.named([tmp_path / "given", tmp_path / "made"])
    assert listed(files) == [str(tmp_path / "given")]


@pytest.mark.parametrize(
    ("path", "left_out"),
    [("/lib/x", True), ("/usr/share/zoneinfo/UTC", True), ("/library/x", False), ("/mnt/data/x", False)],
)
def test_the_systems_own_files_are_left_out(path: str, left_out: bool) -> None:
    assert outside(path, roots(), made=False) is left_out


def test_modules_of_another_folder_are_named_by_their_dotted_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, here = tmp_path / "lib" / "orch_shared_code", tmp_path / "app"
    package.mkdir(parents=True)
    here.mkdir()
    (package / "__init__.py").write_text("")
    (package / "scaling.py").write_text("FACTOR = 2\n")
    monkeypatch.syspath_prepend(str(tmp_path / "lib"))
    monkeypatch.chdir(here)
    importlib.import_module("orch_shared_code.scaling")
    try:
        first = {name: sha256(path) for name, path in project_modules().items()}
        (package / "scaling.py").write_text("FACTOR = 3\n")
        second = {name: sha256(path) for name, path in project_modules().items()}
    finally:
        for name in ("orch_shared_code.scaling", "orch_shared_code"):
            del sys.modules[name]
    changed = [name for name in second if first.get(name) != second[name]]
    assert changed == ["orch_shared_code/scaling.py"]
    assert not [name for name in first if name.startswith(("json/", "pytest", "_pytest"))]


LISTS = """
import glob, importlib.metadata, sys
list(importlib.metadata.distributions())
print(glob.glob("my_data/*.npy"))
"""

POOL = """
import multiprocessing, sys
def size(path):
    return len(open(path, "rb").read())
if __name__ == "__main__":
    with multiprocessing.get_context(sys.argv[1]).Pool(1) as pool:
        print(pool.map(size, ["my_data/0.npy"]))
"""


def seen(project: Path, script: str, *words: str) -> Opened:
    """What a run of a script in a project was seen to open."""
    (project / "my_data").mkdir()
    (project / "my_data" / "0.npy").write_bytes(b"x" * 10)
    (project / "train.py").write_text(script)
    hook = Path(__file__).parents[3] / "orchestrator" / "runtime" / "hook"
    observe = project / "observe"
    asked = {"ORCH_OBSERVE_STEPS": "3", "ORCH_OBSERVE_DIR": str(observe)}
    environ = {**os.environ, "PYTHONPATH": str(hook), **asked}
    command = [sys.executable, "train.py", *words]
    subprocess.run(command, cwd=project, env=environ, check=True, timeout=60)
    return read_opened(observe)


def test_folders_that_orch_lists_are_not_attributed_to_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    files = Files(str(tmp_path / "observe"))
    files.listen()
    surroundings()
    assert files.seen()["folders"] == []
    list(tmp_path.iterdir())
    assert files.seen()["folders"] == [str(tmp_path)]
    files.close()


def test_a_folder_that_is_listed_is_seen_although_an_import_lists_the_project(tmp_path: Path) -> None:
    opened = seen(tmp_path, LISTS)
    assert str(tmp_path / "my_data") in opened.folders and str(tmp_path) not in opened.folders


@pytest.mark.parametrize("start", ["fork", "spawn", "forkserver"])
def test_what_a_worker_opens_is_seen_although_it_is_ended_without_exit_handlers(
    tmp_path: Path, start: str
) -> None:
    assert str(tmp_path / "my_data" / "0.npy") in seen(tmp_path, POOL, start).files


IN_C = """
import ctypes, sys, types
from pathlib import Path
C = ctypes.CDLL(None)
C.fopen.restype = ctypes.c_void_p
C.fopen.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
C.fclose.argtypes = [ctypes.c_void_p]


def in_c(path, mode=b"r"):
    assert not C.fclose(C.fopen(str(path).encode(), mode))


class File:
    def __init__(self, name, mode="r"):
        in_c(name, mode.encode())


imread = read_table = in_c
"""
"""Modules of these names stand for libraries that open files without Python, and close them at once."""

READS_IN_C = """
import cv2, h5py
from pathlib import Path
from pyarrow.parquet import read_table
cv2.imread("1.png")
cv2.imread(filename=Path("2.png"))
h5py.File("3.h5")
h5py.File("4.h5", mode="w")
read_table("5.parquet")
cv2.in_c("6.png")
"""


def test_files_that_a_library_of_c_is_given_are_seen(tmp_path: Path) -> None:
    for name in ("1.png", "2.png", "3.h5", "4.h5", "5.parquet", "6.png"):
        (tmp_path / name).write_text(name)
    packages = tmp_path / "site-packages"
    (packages / "pyarrow").mkdir(parents=True)
    for name in ("cv2.py", "h5py.py", "pyarrow/__init__.py", "pyarrow/parquet.py"):
        text = IN_C.replace("(path, mode", "(filename, mode").replace("str(path)", "str(filename)")
        (packages / name).write_text(text)
    opened = seen(tmp_path, f"import sys\nsys.path.insert(0, {str(packages)!r})\n{READS_IN_C}")
    read = {Path(path).name for path in opened.files} - {"train.py"}
    assert read == {"1.png", "2.png", "3.h5", "5.parquet"}  # what nobody names to Python is not seen


@pytest.mark.parametrize("program", [["train.py"], ["-m", "train"]])
def test_a_program_that_orch_starts_is_named_as_one_that_python_starts(
    tmp_path: Path, program: list[str]
) -> None:
    """Also at its end, when the file that started it is the main program again."""
    (tmp_path / "helper.py").write_text("")
    (tmp_path / "data.csv").write_text("1,2")
    (tmp_path / "train.py").write_text("import helper\nopen('data.csv').read()\n")
    enter = str(Path(agent_at(tmp_path / "machine").root) / "enter.py")
    observed = tmp_path / "observe"
    env = {**os.environ, "ORCH_OBSERVE_DIR": str(observed), "ORCH_OBSERVE_STEPS": "1"}
    subprocess.run([sys.executable, enter, "run", *program], cwd=tmp_path, env=env, check=True, timeout=60)
    (written,) = [json.loads(file.read_text()) for file in observed.glob("opened-*.json")]
    assert [Path(path).name for path in written["modules"]] == ["helper.py", "train.py"]
    assert [Path(each["path"]).name for each in written["files"]["list"]] == ["data.csv"]


def test_modules_are_listed_by_their_real_files_and_a_lazy_one_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Lazy(types.ModuleType):
        def __getattr__(self, name: str) -> Any:
            raise AssertionError(f"it was asked for {name}")

    (tmp_path / "real").mkdir()
    (tmp_path / "folder").symlink_to("real")
    for name, target in (("one", None), ("two", "one.py")):
        path = tmp_path / "real" / f"{name}.py"
        path.symlink_to(target) if target else path.touch()
        module = types.ModuleType(f"orch_test_{name}")
        module.__file__ = str(tmp_path / "folder" / path.name)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(sys.modules, "orch_test_lazy", Lazy("orch_test_lazy"))
    found = dict(module_files())
    real = str((tmp_path / "real/one.py").resolve())
    assert (found["orch_test_one"], found["orch_test_two"]) == (real, real)
    assert "orch_test_lazy" not in found
