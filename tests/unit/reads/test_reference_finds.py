"""The reference side reads real data wherever the script finds them: never a fallback that nobody noticed."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from tests.unit.reads.test_reference import PROFILE, project, ran

pytestmark = pytest.mark.processes

__all__ = ["project"]

LOADS = """\
import json, os
from pathlib import Path
def load(path): print("real" if os.path.exists(path) and open(path, "rb").read() else "mock")
"""


def test_data_any_number_of_folders_above_that_a_configuration_names(project: Path, tmp_path: Path) -> None:
    deep = tmp_path / "one/two/three/four/five/project"
    deep.parent.mkdir(parents=True)
    project.rename(deep)
    (tmp_path / "one/store").mkdir()
    (tmp_path / "one/store/x.bin").write_text("x")
    (deep / "settings.json").write_text(json.dumps({"data": "../../../../../store/x.bin"}))
    run = ran(deep, LOADS + "load(json.load(open('settings.json'))['data'])\n")
    assert (run.output.strip(), run.names) == ("real", ["../../../../../store"])


def test_data_above_that_are_reached_by_the_names_of_the_folders_between(
    project: Path, tmp_path: Path
) -> None:
    (project.parent / "shared").mkdir()
    (project.parent / "shared/x.bin").write_text("x")
    root = "../" * (len(project.parts) - 1)
    script = LOADS + "load('../../outer/shared/x.bin')\nload('../../outer/project/my_data/train/1.bin')\n"
    script += f"load({root + str(tmp_path)[1:] + '/outer/shared/x.bin'!r})\n"
    run = ran(project, script)
    assert run.output.split() == ["real"] * 3 and set(run.names) == {"../shared", "my_data"}


def test_data_beside_the_project_among_very_many_names(project: Path) -> None:
    for number in range(2500):
        (project.parent / f"{number:04}").touch()
    (project.parent / "zz").mkdir()
    (project.parent / "zz/x.bin").write_text("x")
    run = ran(project, LOADS + "load('../zz/x.bin')\n")
    assert (run.output.strip(), run.names) == ("real", ["../zz"])


@pytest.mark.parametrize(
    "counts",
    [
        "sum(name.endswith('.png') for _, _, names in os.walk('my_data') for name in names)",
        "len(list(Path('my_data').rglob('*.png')))",
        "len(list(Path('.').glob('**/*.png')))",
    ],
)
def test_a_walk_finds_what_lies_in_folders_of_very_many_files(
    project: Path, monkeypatch: pytest.MonkeyPatch, counts: str
) -> None:
    """Those are linked to, and no walk follows a link."""
    for name, most in (("MANY", 40), ("WIDE", 20), ("MOST_NAMES", 30)):
        monkeypatch.setattr(f"orchestrator.replay.copier.{name}", most)
    for kind in ("cats", "dogs"):
        (project / "my_data" / kind).mkdir()
        for number in range(50):
            (project / "my_data" / kind / f"{number}.png").touch()
    run = ran(project, LOADS + f"print({counts}, os.path.islink('my_data/cats'))\n")
    assert run.output.split() == ["100", "True"]


def test_what_is_opened_to_be_changed_in_place_was_read(project: Path) -> None:
    """np.memmap opens so unless it is told otherwise; what the run does change, it made."""
    for name in ("map", "changed", "database", "study"):
        (project / name).mkdir()
        (project / name / "x.bin").write_bytes(b"abcd")
    for name in ("database", "study"):
        (project / name / "x.bin").unlink()
        with sqlite3.connect(project / name / "x.db") as made:
            made.execute("create table numbers (x)")
    ignored = ("map", "changed", "database", "study")
    (project / ".gitignore").write_text("my_data\n" + "\n".join(ignored))
    script = """\
        import mmap, sqlite3
        with open("map/x.bin", "r+b") as file: print(mmap.mmap(file.fileno(), 0)[:2])
        with open("changed/x.bin", "r+b") as file: file.write(b"other")
        sqlite3.connect("file:database/x.db?mode=ro", uri=True).execute("select * from numbers").fetchall()
        with sqlite3.connect("study/x.db") as study: study.execute("insert into numbers values (1)")
    """
    run = ran(project, script)
    assert run.reason == "completed" and run.names == ["database", "map"], run.output


def test_an_absolute_path_in_a_file_of_settings_is_not_where_declared_data_are_sent(project: Path) -> None:
    place = project / "my_data/train/1.bin"
    (project / "settings.json").write_text(json.dumps({"data": str(place)}))
    script = LOADS + "load(json.load(open('settings.json'))['data'])\n"
    run = ran(project, script, PROFILE + "data: [{source: my_data}]\n")
    assert (run.output.strip(), run.names) == ("real", [str(place.parent)])


def test_a_link_to_itself_is_copied_as_it_is(project: Path) -> None:
    (project / "itself").symlink_to("itself")
    run = ran(project, LOADS + "load('my_data/train/1.bin')\nprint(os.path.islink('itself'))\n")
    assert run.output.split() == ["real", "True"]
