"""The folder of a repeated run: the user's own stays as it is, and a path can be had with other content."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.parity.intervention import Intervention
from orchestrator.replay.copier import LARGE, MountedCopy
from orchestrator.replay.replay import started_in
from orchestrator.replay.sandbox import Copy, Folders, Unplaceable
from orchestrator.replay.working_folders import Tree, only_listed, unseen
from orchestrator.runtime.replay.mounting import Refused, mount_all
from tests.conftest import ROOT


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with data in it, and data behind a link."""
    project, far = tmp_path / "project", tmp_path / "far"
    for folder in (project / "data", project / ".git", project / ".orch/here/runs/confirm", far / "deep"):
        folder.mkdir(parents=True)
    (project / "train.py").write_text("mine")
    (project / "data/1.csv").write_text("mine")
    with (project / "large").open("wb") as large:
        large.truncate(LARGE + 1)
    (far / "2.csv").write_text("mine")
    (far / "deep/3.csv").write_text("mine")
    (project / "linked").symlink_to(far)
    (tmp_path / "theirs").write_text("theirs")
    return project


def laid_out(project: Path, imposed: Intervention | None = None) -> Copy:
    base = project / ".orch/here"
    return Folders(project).lay_out(base / "runs/confirm", imposed or Intervention(), base)


def contents(folder: Path) -> dict[str, str]:
    return {p.name: p.read_text() for p in folder.rglob("*") if p.is_file() and p.stat().st_size < LARGE}


def test_small_files_are_copied_and_large_ones_linked_to(project: Path) -> None:
    copy = laid_out(project)
    assert (copy.cwd / "train.py").read_text() == "mine" and not (copy.cwd / "train.py").is_symlink()
    assert (copy.cwd / "large").readlink() == project / "large"
    assert not (copy.cwd / ".git").exists() and not copy.mounts


def test_another_file_takes_the_place_of_one_that_is_put_back(project: Path, tmp_path: Path) -> None:
    """`.env` of the working folder was deleted since; the program lies in a folder of its own."""
    (project / "pkg").mkdir()
    (tmp_path / "as it was").write_text("SEED=1")
    back = Intervention(files={str(project / ".env"): tmp_path / "as it was"})
    other = back | Intervention(files={".env": tmp_path / "theirs"}, times={".env": 1000.0})
    base = project / ".orch/here"
    copy = Folders(project, project / "pkg").lay_out(base / "runs/confirm", other, base)
    assert (copy.cwd / ".env").read_text() == "theirs"
    assert not (copy.cwd / "pkg" / ".env").exists()


@pytest.mark.parametrize("name", ["data/1.csv", "linked/2.csv", "linked/deep/3.csv", "linked/new.csv", "new"])
def test_another_file_in_its_place_changes_nothing_of_the_users(project: Path, name: str) -> None:
    before = contents(project.parent)
    copy = laid_out(project, Intervention(files={name: project.parent / "theirs"}, times={name: 1000.0}))
    assert (copy.cwd / name).read_text() == "theirs"
    assert (copy.cwd / name).stat().st_mtime == 1000.0
    for folder in copy.removable:
        shutil.rmtree(folder, ignore_errors=True)
    assert contents(project.parent) == before


def test_a_file_is_taken_away_from_the_copy_alone(project: Path) -> None:
    copy = laid_out(project, Intervention(files={"linked/2.csv": None}))
    assert not (copy.cwd / "linked/2.csv").exists() and (copy.cwd / "linked/deep/3.csv").exists()
    assert (project / "linked/2.csv").exists()


def test_what_the_recorded_run_made_is_left_out(project: Path) -> None:
    base = project / ".orch/here"
    made = frozenset((project / "data/1.csv", project / "large"))
    copy = Folders(project, made=made).lay_out(base / "runs/confirm", Intervention(), base)
    assert sorted(path.name for path in copy.cwd.iterdir()) == ["linked", "train.py"]


def test_a_folder_of_nothing_but_what_the_run_made_was_made_by_it(project: Path) -> None:
    base = project / ".orch/here"
    (project / "cache/deep").mkdir(parents=True)
    (project / "cache/deep/x").write_text("made")
    (project / "empty").mkdir()
    (project / "data/2.csv").write_text("given")
    made = frozenset((project / "cache/deep/x", project / "data/1.csv"))
    copy = Folders(project, made=made).lay_out(base / "runs/confirm", Intervention(), base)
    assert not (copy.cwd / "cache").exists()
    assert (copy.cwd / "empty").is_dir()
    assert [path.name for path in (copy.cwd / "data").iterdir()] == ["2.csv"]


def test_what_lies_nowhere_cannot_be_put_in_its_place(project: Path) -> None:
    with pytest.raises(Unplaceable):
        laid_out(project, Intervention(files={"/no-such-folder/1.csv": project / "train.py"}))


# ---------------------------------------------------------------- as the run sees it

_LOOK = """
import json, os, sys
from orchestrator.runtime.replay.mounting import mount_all
mount_all(json.loads(sys.argv[1]))
os.chdir(sys.argv[2])
print(json.dumps([os.getcwd(), *(open(name).read() for name in sys.argv[3:])]))
open("written", "w").close()
"""


@pytest.fixture(scope="module")
def mounts() -> None:
    """Mounts of one's own are to be had here (a container may forbid them)."""
    pid = os.fork()
    if pid == 0:
        try:
            mount_all([])
        except Refused:
            os._exit(1)
        os._exit(0)
    if os.waitpid(pid, 0)[1] != 0:
        pytest.skip("this system lets no program have mounts of its own")


def seen(copy: Copy, *names: str) -> list[str]:
    """The working folder and what files hold, in a process with the copy's mounts."""
    pairs = json.dumps([[str(source), str(target)] for source, target in copy.mounts])
    command = [sys.executable, "-c", _LOOK, pairs, str(copy.cwd), *names]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout)
    return found


@pytest.mark.usefixtures("mounts")
def test_the_own_content_is_seen_at_the_other_sides_path(project: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "train.py").write_text("theirs")
    copy = laid_out(project, Intervention(path=other))
    assert seen(copy, "train.py", "data/1.csv") == [str(other), "mine", "mine"]
    assert (other / "train.py").read_text() == "theirs" and not (other / "written").exists()


@pytest.mark.usefixtures("mounts")
def test_a_copy_is_seen_at_the_original_path_with_what_it_links_to(project: Path) -> None:
    (project / "large").write_text("large" + " " * LARGE)
    (project / "inside").symlink_to(project / "data")
    keep = project / ".orch/here/runs/confirm/kept"
    keep.write_text("ours")
    copy = laid_out(project, Intervention(path=project, files={"data/1.csv": project.parent / "theirs"}))
    found = seen(copy, "data/1.csv", "large", "linked/2.csv", str(keep))
    assert [found[0], *(text.strip() for text in found[1:])] == [
        str(project),
        "theirs",
        "large",
        "mine",
        "ours",
    ]
    assert (project / "data/1.csv").read_text() == "mine" and not (project / "written").exists()


@pytest.mark.usefixtures("mounts")
def test_a_file_beside_the_project_is_another_for_the_run_alone(project: Path, tmp_path: Path) -> None:
    files = {
        str(tmp_path / "far/2.csv"): tmp_path / "theirs",
        str(tmp_path / "far/4.csv"): tmp_path / "theirs",
    }
    copy = laid_out(project, Intervention(files=files))
    names = [str(tmp_path / f"far/{name}") for name in ("2.csv", "4.csv", "deep/3.csv")]
    assert seen(copy, *names) == [str(copy.cwd), "theirs", "theirs", "mine"]
    assert contents(tmp_path / "far") == {"2.csv": "mine", "3.csv": "mine"}


# ---------------------------------------------------------------- files that nobody was seen to read


def test_files_that_differ_are_found_without_having_been_seen(tmp_path: Path) -> None:
    one, other = tmp_path / "a", tmp_path / "b"
    for folder in (one, other):
        (folder / "data").mkdir(parents=True)
        for name in ("same", "data/seen", "data/unseen", "made", ".hidden"):
            (folder / name).write_text("same" if name == "same" else str(folder))
    (other / "more").write_text("more")
    facts = {"files": {"list": [{"name": "made", "made": True}]}}
    (found,) = unseen(Tree(one), Tree(other), {"data/seen"}, facts)
    assert [each.imposed and dict(each.imposed.files) for each in found.parts] == [
        {str(one / "data/unseen"): other / "data/unseen"},
        {str(one / "more"): other / "more"},
    ]
    assert list(unseen(Tree(one), Tree(one), set(), facts)) == []


def test_what_was_written_after_the_observed_steps_is_no_cause_of_them(tmp_path: Path) -> None:
    trees = []
    for side in ("a", "b"):
        folder, observe = tmp_path / side, tmp_path / f"{side}-observe"
        for place, moment in ((folder / "read", 1000), (observe / "environment.json", 2000)):
            place.parent.mkdir(exist_ok=True)
            place.write_text(side)
            os.utime(place, (moment, moment))
        (folder / "model").write_text(side)
        trees.append(Tree(folder, observe))
    (found,) = unseen(*trees, set(), {})
    assert found.imposed and list(found.imposed.files) == [str(tmp_path / "a/read")]


def test_what_a_run_made_was_not_there_when_it_began(tmp_path: Path) -> None:
    """A made at its end what B had from the beginning: the same bytes, and yet the difference."""
    for side in ("a", "b"):
        (tmp_path / side).mkdir()
        (tmp_path / side / "ckpt-1").write_text("same")
    mine, theirs = Tree(tmp_path / "a", made=frozenset({"ckpt-1"})), Tree(tmp_path / "b", side="B")
    (found,) = unseen(mine, theirs, set(), {})
    assert found.words == "the file ckpt-1 is in B alone (no run was seen to open it)"
    assert found.fix == "Delete ckpt-1 in B, or copy it to A too."
    assert found.imposed and found.imposed.files == {str(tmp_path / "a/ckpt-1"): tmp_path / "b/ckpt-1"}


def test_a_file_and_a_link_to_the_same_are_no_difference(tmp_path: Path) -> None:
    for name in ("a/train.py", "far/train.py"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("same")
    (tmp_path / "b").mkdir()
    (tmp_path / "b/train.py").symlink_to("../far/train.py")
    assert list(unseen(Tree(tmp_path / "a"), Tree(tmp_path / "b", side="B"), set(), {})) == []
    (tmp_path / "far/train.py").write_text("other")
    assert len(list(unseen(Tree(tmp_path / "a"), Tree(tmp_path / "b", side="B"), set(), {}))) == 1


def test_a_name_is_of_the_programs_own_folder_before_those_around_it(tmp_path: Path) -> None:
    for name in ("src/prep.py", "x.npy", "src/both", "both"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("mine")
    (tmp_path / "theirs").write_text("theirs")
    folders = Folders(tmp_path, tmp_path / "src")
    names = ("prep.py", "x.npy", "both", "new")
    imposed = Intervention(files=dict.fromkeys(names, tmp_path / "theirs"))
    copy = folders.lay_out(tmp_path / ".orch/runs", imposed, tmp_path / ".orch")
    found = {
        p.relative_to(copy.cwd).as_posix()
        for p in copy.cwd.rglob("*")
        if p.is_file() and p.read_text() == "theirs"
    }
    assert found == {"src/prep.py", "x.npy", "src/both", "src/new", "theirs"}


def test_an_empty_folder_is_put_in_place_and_taken_away(tmp_path: Path) -> None:
    for folder in ("a/data/cat", "a/empty", "b/data/cat", "b/data/.ipynb_checkpoints", "b/.git"):
        (tmp_path / folder).mkdir(parents=True)
    for side in ("a", "b"):
        (tmp_path / side / "data/cat/1.npy").write_text("1")
    (found,) = only_listed(Tree(tmp_path / "a"), Tree(tmp_path / "b", side="B"))
    assert found.words == "what folders list: data/.ipynb_checkpoints is in B alone; empty is in A alone"
    copy = laid_out(tmp_path / "a", found.imposed)
    assert (copy.cwd / "data/.ipynb_checkpoints").is_dir() and not (copy.cwd / "empty").exists()
    assert (tmp_path / "a/empty").is_dir() and (copy.cwd / "data/cat/1.npy").read_text() == "1"
    assert list(only_listed(Tree(tmp_path / "a"), Tree(tmp_path / "a"))) == []


@pytest.mark.parametrize(
    ("start", "inside"), [(".", "src"), ("..", ""), ("../data", "data"), ("../..", None), ("gone", None)]
)
def test_where_a_program_is_started(tmp_path: Path, start: str, inside: str | None) -> None:
    for folder in ("src", "data"):
        (tmp_path / "copy" / folder).mkdir(parents=True)
    copy = tmp_path / "copy"
    seat = MountedCopy(Path("/p"), copy, copy, tmp_path / "under")
    found = started_in(copy / "src/train.py", start, Copy(copy, (seat,)))
    assert found == (None if inside is None else copy / inside)


def test_of_many_files_no_more_names_are_laid_out_than_is_quick_and_code_comes_first(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, most in (("MANY", 40), ("WIDE", 5), ("MOST_NAMES", 60)):
        monkeypatch.setattr(f"orchestrator.replay.copier.{name}", most)
    for folder, files in (
        ("a_wide/all", 50),
        ("b_deep/1", 30),
        ("b_deep/2", 30),
        ("b_deep/3", 30),
        ("z/src", 2),
    ):
        (project / folder).mkdir(parents=True)
        for number in range(files):
            (project / folder / f"{number}.bin").write_text("x")
    copy = laid_out(project, Intervention())
    assert not (copy.cwd / "z/src").is_symlink() and (copy.cwd / "z/src/1.bin").is_file()
    assert (copy.cwd / "a_wide/all").is_symlink() and not (copy.cwd / "a_wide").is_symlink()
    assert [(copy.cwd / "b_deep" / each).is_symlink() for each in "123"].count(True) >= 1
    assert sum(len(list((copy.cwd / f"b_deep/{each}").iterdir())) for each in "123") == 90
