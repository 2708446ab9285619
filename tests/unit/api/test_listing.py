"""Folders list what they did where they were recorded, by each of Python's ways, in each Python there is."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

LISTS = """
import glob, json, os, pathlib, sys
from pathlib import Path
copy, original, order = json.loads(sys.argv[1])
if copy:
    from orchestrator.runtime.replay import listing
    listing.install(order, [[copy, original]])
os.chdir(copy or original)
def ordered(found): return [os.path.basename(str(path)) for path in found if str(path).endswith(".txt")]
def walked(steps): return sorted(name for _, _, names in steps for name in names)
lists = {
    "iterdir": ordered(Path("data").iterdir()), "glob": ordered(Path("data").glob("*.txt")),
    "glob.glob": ordered(glob.glob("data/*.txt")), "listdir": ordered(os.listdir("data")),
    "scandir": ordered(entry.path for entry in os.scandir("data")),
}
below = {
    "rglob": sorted(ordered(Path("data").rglob("*.txt"))),
    "glob.glob": sorted(ordered(glob.glob("data/**/*.txt", recursive=True))),
    "walk": walked(os.walk("data")), "bottom up": walked(os.walk("data", topdown=False)),
    "links": walked(os.walk("data", followlinks=True)),
    "folders": sorted(entry.name for entry in os.scandir("data") if entry.is_dir(follow_symlinks=False)),
    "Path.walk": walked(Path("data").walk()) if hasattr(Path, "walk") else [],
}
print(json.dumps([lists, below]))
"""


def _pythons() -> list[str]:
    """Interpreters of 3.9 and later on this computer, one of each version."""
    names = [f"python3.{minor}" for minor in range(9, 15)]
    beside = Path(sys.base_prefix).parent.glob("*/bin/python3.*")
    on_path = (path for path in map(shutil.which, names) if path and "shims" not in path)
    found = {Path(path).name: str(path) for path in (*on_path, *beside)}
    return [found[name] for name in names if name in found and re.fullmatch(r"python3\.\d+", name)]


@pytest.mark.parametrize("python", _pythons(), ids=lambda path: Path(path).name)
def test_every_way_to_list_has_the_order_and_the_folders_of_the_original(python: str, tmp_path: Path) -> None:
    original, copy, outside = (tmp_path / name for name in ("original", "copy", "outside"))
    (original / "data/linked/deep").mkdir(parents=True)
    (copy / "data").mkdir(parents=True)
    outside.mkdir()
    (outside / "user.txt").touch()
    (original / "data/linked/deep/x.txt").touch()
    for folder in (original, copy):
        for name in "abcd":
            (folder / f"data/{name}.txt").touch()
        (folder / "data/users").symlink_to(outside)
    (copy / "data/linked").symlink_to(original / "data/linked")

    order = ["d.txt", "b.txt", "a.txt", "c.txt"]
    lists, below = _said(python, str(copy), str(original), order)
    assert lists == dict.fromkeys(lists, order)
    assert below == _said(python, "", str(original), [])[1]


def _said(python: str, copy: str, original: str, order: list[str]) -> tuple[dict[str, list[str]], object]:
    command = [python, "-B", "-c", LISTS, json.dumps([copy, original, order])]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True)
    lists, below = json.loads(done.stdout)
    return lists, below
