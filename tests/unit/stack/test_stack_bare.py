"""A machine that has only a shell, tar and coreutils, in a root file system of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import StackError
from orchestrator.hosts.here import HereChannel, HereHost
from orchestrator.model import LARGEST_FILE, Agent, Completed
from orchestrator.stack import bootstrap, install, interpreter, read_lock
from tests.unit.stack_locks import requirements_lock

_COMMANDS = "sh tar cat ls mkdir mv rm rmdir chmod uname getconf sha256sum df timeout env ln sleep true"
_NEEDED_BY_UV = "libgcc_s.so.1"


def _may_change_root() -> bool:
    """Root on Linux, in a place where it may mount."""
    if sys.platform != "linux" or os.geteuid() != 0 or not shutil.which("unshare"):
        return False
    return subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode == 0


pytestmark = [
    pytest.mark.registry,
    pytest.mark.skipif(not _may_change_root(), reason="needs root on Linux, to mount"),
]


class BareHost:
    """Commands in another root file system, with an environment of their own."""

    name = "bare"

    def __init__(self, root: Path) -> None:
        self.root = root
        self._here = HereHost()

    def _inside(self, argv: Sequence[str]) -> tuple[str, ...]:
        enter = 'root=$1; shift; mount --bind /proc "$root/proc" && exec chroot "$root" "$@"'
        inside = ("/bin/env", "-i", "PATH=/bin", "HOME=/", *argv)
        return ("unshare", "--mount", "sh", "-c", enter, "sh", str(self.root), *inside)

    def run(self, argv: Sequence[str], **options: Any) -> Completed:
        return self._here.run(self._inside(argv), **options)

    def open(self, argv: Sequence[str]) -> HereChannel:
        return self._here.open(self._inside(argv))

    def put(self, source: bytes | Path, target: str, *, mode: int = 0o644) -> None:
        self._here.put(source, f"{self.root}{target}", mode=mode)

    def get(self, source: str, target: Path, *, most: int = LARGEST_FILE) -> None:
        self._here.get(f"{self.root}{source}", target, most=most)

    def close(self) -> None:
        self._here.close()


def _libraries(binaries: Sequence[str]) -> set[str]:
    said = subprocess.run(["ldd", *binaries], capture_output=True, text=True, check=False).stdout
    return set(re.findall(r"(/\S+) \(0x", said))


@pytest.fixture
def bare(tmp_path: Path) -> BareHost:
    root = tmp_path / "root"
    binaries = [shutil.which(name) or "" for name in _COMMANDS.split()]
    libc = next(path for path in _libraries(binaries) if "/libc.so" in path)
    gcc = Path(libc).parent / _NEEDED_BY_UV
    glibc = [Path(libc).parent / f"lib{name}" for name in ("m.so.6", "dl.so.2", "rt.so.1", "pthread.so.0")]
    for path in {*_libraries(binaries), *map(str, [gcc, *glibc])}:
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    (root / "bin").mkdir()
    for binary in binaries:
        shutil.copy(binary, root / "bin")
    for folder in ("tmp", "dev", "opt", "proc"):
        (root / folder).mkdir()
    (root / "dev/null").touch()
    return BareHost(root)


def _pythons() -> list[Path]:
    """Interpreters of this computer, of different making: the one that runs this, and the system's."""
    system = Path("/usr/bin/python3")
    return [Path(sys.executable), *([system] if system.exists() and _has_library(system) else [])]


def _has_library(python: Path) -> bool:
    return not interpreter(python).missing


@pytest.mark.parametrize("python", _pythons(), ids=lambda python: interpreter(python).version)
def test_a_bare_machine_gets_an_interpreter_with_all_its_modules(bare: BareHost, python: Path) -> None:
    agent = bootstrap(bare, base="/opt/orch", interpreter=interpreter(python))
    modules = "ssl, sqlite3, ctypes, lzma, bz2, zlib, hashlib, sys"
    program = f"import {modules}; print(sys.version, sys.prefix, sep=chr(10))"
    done = bare.run((agent.python, "-I", "-c", program))
    assert done.stderr == b""
    version, prefix = done.stdout.decode().splitlines()[0], done.stdout.decode().splitlines()[-1]
    assert version.startswith(interpreter(python).version + " ")
    assert prefix == str(Path(agent.python).parent.parent)


def test_the_second_bootstrap_sends_nothing(bare: BareHost) -> None:
    python = interpreter(Path(sys.executable))
    first = bootstrap(bare, base="/opt/orch", interpreter=python)
    before = _stamps(bare.root / "opt")
    assert bootstrap(bare, base="/opt/orch", interpreter=python) == first
    assert _stamps(bare.root / "opt") == before


def _stamps(root: Path) -> dict[str, tuple[int, int]]:
    return {str(p): (p.lstat().st_ino, p.lstat().st_mtime_ns) for p in root.rglob("*") if not p.is_dir()}


def test_a_stack_is_pushed_without_any_network(
    bare: BareHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCH_CACHE_HOME", str(tmp_path / "cache"))
    python = interpreter(Path(sys.executable))
    agent = bootstrap(bare, base="/opt/orch", interpreter=python)
    made = install(bare, agent, read_lock(requirements_lock(tmp_path)), python)
    assert [d.name for d in made.fingerprint.distributions] == ["packaging", "six"]
    done = bare.run((made.python, "-I", "-c", "import six, packaging; print(six.__file__)"))
    assert done.stdout.decode().startswith(f"{agent.base}/stacks/")


def test_an_interpreter_that_cannot_run_there_is_refused_with_the_reason(bare: BareHost) -> None:
    """A machine without the dynamic loader's C library version: here, one that says it is older."""
    script = "#!/bin/sh\necho glibc 2.17\n"
    (bare.root / "bin/getconf").write_text(script)
    with pytest.raises(StackError, match=r"it needs glibc 2\.\d+, the machine has glibc 2\.17"):
        bootstrap(bare, base="/opt/orch", interpreter=interpreter(Path(sys.executable)))


def test_a_push_that_was_cut_off_converges(bare: BareHost) -> None:
    """Whatever a killed bootstrap left under its temporary names is no part of the next one."""
    python = interpreter(Path(sys.executable))
    for kind in ("python", "runtime", "uv"):
        half = bare.root / f"opt/orch/{kind}/.new-0123"
        (half / "bin").mkdir(parents=True)
        (half / "bin/python3").write_text("half")
    agent = bootstrap(bare, base="/opt/orch", interpreter=python)
    assert isinstance(agent, Agent)
    assert bare.run((agent.python, "-I", "-c", "print(1)")).stdout == b"1\n"
