"""A binary with a new search path: still the same program, and it finds its library there."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.stack import interpreter
from orchestrator.stack.bundle import parse_ldd
from orchestrator.stack.elf import NotPatchable, glibc_needed, is_elf, with_runpath

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="ELF files belong to Linux")


def _loaded_by(binary: Path) -> dict[str, Path]:
    said = subprocess.run(["ldd", str(binary)], capture_output=True, text=True, check=True).stdout
    return parse_ldd(said, [binary])[binary]


def test_the_loader_takes_the_library_from_the_new_place(tmp_path: Path) -> None:
    original = Path(shutil.which("ls") or "/bin/ls").resolve()
    image = original.read_bytes()
    own = ((name, path) for name, path in _loaded_by(original).items() if "libc." not in name)
    name, path = next(item for item in own if item[0].encode() in image)
    (tmp_path / "lib").mkdir()
    shutil.copy(path, tmp_path / "lib" / name)
    moved = tmp_path / "bin" / "ls"
    moved.parent.mkdir()
    moved.write_bytes(with_runpath(image, "$ORIGIN/../lib"))
    moved.chmod(0o755)
    assert _loaded_by(moved)[name].resolve() == tmp_path / "lib" / name
    assert subprocess.run([moved, tmp_path], capture_output=True, check=True).stdout == b"bin\nlib\n"


def test_a_path_that_is_there_already_is_replaced(tmp_path: Path) -> None:
    binary = Path(interpreter(Path(sys.executable)).base_executable)
    once = with_runpath(binary.read_bytes(), "/nowhere")
    twice = tmp_path / "python"
    twice.write_bytes(with_runpath(once, str(binary.parent.parent / "lib")))
    twice.chmod(0o755)
    said = subprocess.run([twice, "--version"], capture_output=True, text=True, check=True).stdout
    assert said.split()[1] == interpreter(Path(sys.executable)).version
    assert (
        "not found" not in subprocess.run(["ldd", twice], capture_output=True, text=True, check=True).stdout
    )


@pytest.mark.parametrize("image", [b"", b"#!/bin/sh\n", b"\x7fELF\x01\x01" + bytes(100)])
def test_what_is_no_such_binary_is_refused(image: bytes) -> None:
    assert not is_elf(image)
    with pytest.raises(NotPatchable):
        with_runpath(image, "$ORIGIN")


def test_the_newest_symbol_version_counts() -> None:
    assert glibc_needed(b"..GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.9\0GLIBC_PRIVATE\0") == (2, 34)
    assert glibc_needed(b"no names") == (0, 0)


def test_ldd_of_several_files() -> None:
    one, two = Path("/x/one.so"), Path("/x/two.so")
    text = (
        "/x/one.so:\n\tlinux-vdso.so.1 (0x00007ff)\n\tliba.so.1 => /lib/liba.so.1 (0x00007f)\n"
        "/x/two.so:\n\tlibb.so => not found\n\tlibc.so.6 => /lib/libc.so.6 (0x00ab)\n"
    )
    assert parse_ldd(text, [one, two]) == {
        one: {"liba.so.1": Path("/lib/liba.so.1")},
        two: {"libc.so.6": Path("/lib/libc.so.6")},
    }
