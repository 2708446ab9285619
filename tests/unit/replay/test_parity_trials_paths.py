"""Recorded and confirmed from end to end: settings that name files of their own project by absolute paths."""

from __future__ import annotations

import os
import sqlite3
import sys
from pathlib import Path

import pytest

from orchestrator.model import RunRecord
from tests.unit.replay.test_parity_trials import IMPORT, Bench, bench, outcomes

__all__ = ["bench"]

READ = "train([1, 2, 3, float(open(place).read())])\n"

ASKED = {
    "a text": "place = open('settings.txt').read()\n",
    "a hidden file": "place = open('.env').read().partition('=')[2]\n",
    "a database": (
        "import sqlite3\nfound = sqlite3.connect('places.db').execute('select name from place')\n"
        "place = found.fetchone()[0]\n"
    ),
    "a variable": "import os\nplace = os.environ['PLACE']\n",
    "an argument": "import sys\nplace = sys.argv[1]\n",
    "a link": "place = 'linked/data.csv'\n",
    "a link to the folder": "import os\nplace = os.path.realpath('linked/data.csv')\n",
}


def _settings(bench: Bench, folder: Path, number: str, way: str) -> RunRecord:
    """A recorded run of a project that says by absolute paths where its data are."""
    place = folder / "store/data.csv"
    (folder / "settings.txt").write_text(str(place))
    (folder / ".env").write_text(f"PLACE={place}")
    (folder / "linked").symlink_to(folder / "store")
    with sqlite3.connect(folder / "places.db") as base:
        base.execute("create table place (name text)")
        base.execute("insert into place values (?)", (str(place),))
    place.write_text(number)
    if way == "a variable":
        bench.monkeypatch.setenv("PLACE", str(place))
    return bench.record(folder, sys.executable, "train.py", *([str(place)] if way == "an argument" else []))


@pytest.mark.parametrize("way", ASKED)
def test_a_file_that_is_named_by_its_absolute_path_is_the_cause(bench: Bench, way: str) -> None:
    files = {"train.py": IMPORT + ASKED[way] + READ, "store/data.csv": ""}
    sides = [_settings(bench, bench.project(name, files), n, way) for name, n in (("a", "4"), ("b", "5"))]
    found = bench.verdict(*sides)
    named = "@1" if way == "an argument" else "data.csv is not the same"
    assert (found.cause or "").startswith("Confirmed: the file") and named in (found.cause or ""), found
    assert "confirmed" not in {how for words, how in outcomes(found).items() if named not in words}


def test_a_module_of_a_folder_that_is_named_by_its_absolute_path_is_the_cause(bench: Bench) -> None:
    text = IMPORT + "import numbers_of_mine\ntrain([1, 2, 3, numbers_of_mine.FOURTH])\n"
    sides = []
    for name, number in (("a", 4), ("b", 5)):
        folder = bench.project(name, {"train.py": text, "lib/numbers_of_mine.py": f"FOURTH = {number}\n"})
        path = os.environ["PYTHONPATH"]
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", os.pathsep.join([str(folder / "lib"), path]))
            sides.append(bench.record(folder))
    found = bench.verdict(*sides)
    assert (found.cause or "").startswith("Confirmed: the code differs: "), found


def test_a_file_in_the_home_folder_that_settings_name_is_the_cause(bench: Bench) -> None:
    text = IMPORT + ASKED["a text"] + READ
    sides = []
    for name, number in (("a", "4"), ("b", "5")):
        home = bench.root.parent / f"home-{name}"
        (home / "data").mkdir(parents=True)
        (home / "data/numbers.csv").write_text(number)
        bench.monkeypatch.setenv("HOME", str(home))
        folder = bench.project(name, {"train.py": text, "settings.txt": str(home / "data/numbers.csv")})
        sides.append(bench.record(folder))
    found = bench.verdict(*sides)
    assert found.cause == "Confirmed: the file ~/data/numbers.csv is not the same.", found


def test_a_file_that_only_one_sides_settings_name_is_imposed_with_them(bench: Bench) -> None:
    text = IMPORT + ASKED["a text"] + READ
    sides = []
    for name, number in (("a", "4"), ("b", "5")):
        folder = bench.project(name, {"train.py": text, f"{name}.csv": number})
        (folder / "settings.txt").write_text(str(folder / f"{name}.csv"))
        sides.append(bench.record(folder))
    found = bench.verdict(*sides)
    told = {words: how for words, how in outcomes(found).items() if how == "confirmed"}
    assert set(told) == {"the file settings.txt is not the same", "the file b.csv is read in B alone"}, found


def test_where_no_mounts_are_to_be_had_nothing_is_confirmed_or_cleared_falsely(bench: Bench) -> None:
    """A wrapped command has none: its run reads the original, whatever lies in its copy."""
    files = {"train.py": IMPORT + ASKED["a text"] + READ, "store/data.csv": "", "go.sh": "python train.py\n"}
    runs = []
    for name, number in (("a", "4"), ("b", "5")):
        folder = bench.project(name, files)
        (folder / "store/data.csv").write_text(number)
        (folder / "settings.txt").write_text(str(folder / "store/data.csv"))
        runs.append(bench.record(folder, "sh", "go.sh"))
    found = bench.verdict(*runs)
    told = outcomes(found)
    assert not found.confirmed, found
    assert told["the file settings.txt is not the same"] == "not tried", found.tried
    assert told["the file store/data.csv is not the same"] == "not tried", found.tried


def test_temporary_files_of_recorded_and_repeated_runs_are_removed(bench: Bench) -> None:
    """As those that AutoGraph leaves where a process is ended early."""
    temporary = bench.root.parent / "tmp"
    temporary.mkdir()
    bench.monkeypatch.setenv("TMPDIR", str(temporary))
    text = IMPORT + "import tempfile\nprint(tempfile.mkstemp(prefix='left-')[1])\n"
    text += "train([1, 2, 3, float(open('data.csv').read())])\n"
    sides = [bench.record(bench.project(n, {"train.py": text, "data.csv": str(ord(n))})) for n in "ab"]
    said = (sides[0].folder / "output.log").read_text()
    assert said.startswith(f"{temporary}/orch-"), said
    assert bench.verdict(*sides).confirmed
    assert not list(temporary.rglob("left-*"))


def test_a_project_that_settings_name_by_a_link_to_it_is_the_project(bench: Bench) -> None:
    text = IMPORT + ASKED["a text"] + READ
    sides = []
    for name, number in (("a", "4"), ("b", "5")):
        folder = bench.project(f"disk/{name}", {"train.py": text, "data.csv": number})
        link = bench.root / name
        link.symlink_to(folder)
        (folder / "settings.txt").write_text(str(link / "data.csv"))
        sides.append(bench.record(link))
    found = bench.verdict(*sides)
    assert found.cause == "Confirmed: the file data.csv is not the same.", found
    assert outcomes(found)["the file settings.txt is not the same"] == "cleared", found.tried


def test_a_cache_that_was_data_and_is_gone_since_is_named(bench: Bench) -> None:
    """What a hub keeps below ~/.cache: the run of which it is still there is repeated."""
    cache = Path(os.environ["HOME"]) / ".cache/hub/set.arrow"
    cache.parent.mkdir(parents=True)
    text = IMPORT + "from pathlib import Path\n"
    text += "train([1, 2, 3, float((Path.home() / '.cache/hub/set.arrow').read_text())])\n"
    folder = bench.project("a", {"train.py": text})
    sides = []
    for number in ("4", "5"):
        cache.write_text(number)
        sides.append(bench.record(folder, run_id=f"r{number}"))
    found = bench.verdict(*sides)
    assert not found.confirmed and "the file ~/.cache/hub/set.arrow is not the same" in (found.untried or "")


HUB = "/.cache/huggingface/hub/datasets--me--tiny"


def hub(revision: str, number: str) -> None:
    """The cache of the hub's library after `main` moved to another revision."""
    folder = Path(f"{os.environ['HOME']}{HUB}")
    for name, text in ((f"blobs/{revision}", number), ("refs/main", revision)):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    link = folder / "snapshots" / revision / "train.csv"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(f"../../blobs/{revision}")


FROM_HUB = """\
import os
from pathlib import Path
hub = Path(os.path.expanduser("~HUB"))
data = float((hub / "snapshots" / (hub / "refs/main").read_text() / "train.csv").read_text())
"""


def test_a_data_set_of_a_hub_that_moved_is_the_cause(bench: Bench) -> None:
    text = IMPORT + FROM_HUB.replace("~HUB", f"~{HUB}") + "train([1, 2, 3, data])\n"
    folder, sides = bench.project("a", {"train.py": text}), []
    for revision, number in (("a" * 40, "4"), ("b" * 40, "5")):
        hub(revision, number)
        sides.append(bench.record(folder, run_id=f"r{number}"))
    found = bench.verdict(*sides)
    assert found.cause == f"Confirmed: the file ~{HUB}/train.csv is not the same.", found


def test_what_a_hub_keeps_account_of_is_not_the_cause(bench: Bench) -> None:
    text = IMPORT + FROM_HUB.replace("~HUB", f"~{HUB}") + "train([1, 2, data, float(os.environ['X'])])\n"
    folder, sides = bench.project("a", {"train.py": text}), []
    for revision, number in (("a" * 40, "4"), ("b" * 40, "5")):
        hub(revision, "3")
        bench.monkeypatch.setenv("X", number)
        sides.append(bench.record(folder, run_id=f"r{number}"))
    found = bench.verdict(*sides)
    assert found.confirmed and " X " in f"{found.cause} " and "hub" not in str(found.cause), found
