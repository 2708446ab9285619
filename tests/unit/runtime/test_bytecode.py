"""Bytecode of a new environment: linked where another one has that of the same file, else compiled."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from orchestrator.runtime.attest import bytecode
from orchestrator.runtime.attest.bytecode import compile_rest, link_compiled

SITE = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"


@pytest.fixture
def stacks(tmp_path: Path) -> Path:
    """A cache with the modules a and p.b, and the environment "old", which has links to them, compiled."""
    (tmp_path / "cache/p").mkdir(parents=True)
    for name in ("a.py", "p/__init__.py", "p/b.py"):
        (tmp_path / "cache" / name).write_text("def where(): return where.__code__.co_filename\n")
    environment(tmp_path, "old")
    compile_rest(str(tmp_path), "old")
    (tmp_path / "old.json").write_text("{}")
    return tmp_path


def environment(stacks: Path, name: str) -> Path:
    """One whose modules are links to those of the cache, as uv makes it."""
    site = stacks / name / SITE
    shutil.copytree(stacks / "cache", site, copy_function=os.link)
    return site


def compiled(site: Path, module: str) -> Path:
    return Path(cache_from_source(str(site / module)))


def test_the_same_file_shares_its_bytecode(stacks: Path) -> None:
    site = environment(stacks, "new")
    assert link_compiled(str(stacks), "new") == 3
    for module in ("a.py", "p/__init__.py", "p/b.py"):
        assert compiled(site, module).samefile(compiled(stacks / "old" / SITE, module))


def test_a_traceback_names_the_file_of_its_own_environment(stacks: Path) -> None:
    site = environment(stacks, "new")
    link_compiled(str(stacks), "new")
    before = compiled(site, "a.py").stat()
    program = f"import sys; sys.path[:0] = [{str(site)!r}]; import a; print(a.where())"
    said = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == str(site / "a.py")
    assert compiled(site, "a.py").stat().st_mtime_ns == before.st_mtime_ns  # used, not compiled anew


@pytest.mark.parametrize("other", ["a copy", "edited", "incomplete"])
def test_of_another_file_or_an_incomplete_environment_nothing_is_linked(stacks: Path, other: str) -> None:
    site = environment(stacks, "new")
    if other == "incomplete":
        (stacks / "old.json").unlink()
    else:
        content = (site / "a.py").read_text() + ("more = 1\n" if other == "edited" else "")
        (site / "a.py").unlink()
        (site / "a.py").write_text(content)
    assert link_compiled(str(stacks), "new") == (0 if other == "incomplete" else 2)
    assert not compiled(site, "a.py").exists()
    assert bytecode.main([str(stacks), "new"]) == 0
    assert not compiled(site, "a.py").samefile(compiled(stacks / "old" / SITE, "a.py"))


def test_what_nobody_has_is_compiled_and_what_cannot_be_is_left(stacks: Path) -> None:
    site = environment(stacks, "new")
    (site / "p/c.py").write_text("more = 1\n")
    (site / "template.py").write_text("{{ no Python }}\n")
    assert bytecode.main([str(stacks), "new"]) == 0
    assert compiled(site, "p/c.py").exists() and not compiled(site, "template.py").exists()
    assert compiled(site, "a.py").samefile(compiled(stacks / "old" / SITE, "a.py"))


def test_a_folder_without_room_for_links_is_compiled(stacks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = environment(stacks, "new")

    def refused(*_: object) -> None:
        raise OSError("too many links")

    monkeypatch.setattr(os, "link", refused)
    assert bytecode.main([str(stacks), "new"]) == 0
    assert compiled(site, "a.py").exists()
