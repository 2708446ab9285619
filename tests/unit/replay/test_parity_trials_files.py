"""Recorded and confirmed from end to end: the file, module or cache that is the cause, among others."""

from __future__ import annotations

import sys

import pytest

import orchestrator as orch
from tests.unit.replay.test_parity_trials import IMPORT, Bench, bench, outcomes

pytestmark = pytest.mark.processes

__all__ = ["bench"]

TWO = """
from pathlib import Path
one = float(Path(".env").read_text())
other = float((Path(__file__).parent / ".env").read_text())
train([1, 2, one, other])
"""


@pytest.mark.parametrize("guilty", [".env", "src/.env"])
def test_a_file_of_the_working_folder_and_one_of_the_programs_have_one_name(
    bench: Bench, guilty: str
) -> None:
    files = {"src/train.py": IMPORT + TWO, ".env": "1", "src/.env": "2"}
    sides = [bench.project("a", files), bench.project("b", {**files, guilty: "5"})]
    found = bench.verdict(*[bench.record(folder, sys.executable, "src/train.py") for folder in sides])
    assert found.cause == f"Confirmed: the file {guilty} is not the same.", found


def test_modules_of_other_names_are_compared_by_what_they_contain(bench: Bench) -> None:
    text = IMPORT + "from . import shared\ntrain([1, 2, 3, {}])\n"
    files = {"pkg/__init__.py": "", "pkg/shared.py": "", "pkg/train.py": text.format(4)}
    project = bench.project(
        "one", {**files, "pkg/train_b.py": text.format(5), "pkg/__main__.py": text.format(6)}
    )
    runs = {
        name: bench.record(project, sys.executable, "-m", name, run_id=name.replace(".", "-"))
        for name in ("pkg.train", "pkg.train_b", "pkg")
    }
    for one, other in (("pkg.train", "pkg.train_b"), ("pkg.train", "pkg"), ("pkg", "pkg.train_b")):
        found = bench.verdict(runs[one], runs[other])
        assert found.confirmed and "the program is" in (found.cause or ""), found


@pytest.mark.parametrize("written", [("-f", "{}"), ("--f={}",)])
def test_a_connection_file_of_any_name_that_a_kernel_was_given_is_no_difference(
    bench: Bench, written: tuple[str, ...]
) -> None:
    """nbconvert and papermill make a temporary one."""
    text = IMPORT + "import sys\nopen(sys.argv[-1].split('=')[-1]).read()\n"
    text += "train([1, 2, 3, float(open('n.txt').read())])\n"
    project = bench.project("one", {"ipykernel_launcher.py": text})
    runs = []
    for n in ("1", "2", "1"):
        (project / "n.txt").write_text(n)
        file = bench.root / f"tmp{len(runs)}q7.json"
        file.write_text(f'{{"port": {len(runs)}}}')
        arguments = [word.format(file) for word in written]
        command = (sys.executable, "ipykernel_launcher.py", *arguments)
        runs.append(bench.record(project, *command, run_id=f"r{len(runs)}"))
    found = bench.verdict(*runs[:2])
    assert found.cause == "Confirmed: the file n.txt is not the same.", found
    assert list(outcomes(found)) == ["the file n.txt is not the same"]
    alike = orch.compare(runs[0].folder, runs[2].folder, folder=bench.root)
    assert alike.verdict == "IDENTICAL" and "other data" not in alike.detail


def test_an_option_f_of_the_users_own_script_is_data(bench: Bench) -> None:
    text = IMPORT + "import sys\ntrain([1, 2, 3, float(open(sys.argv[2]).read())])\n"
    project = bench.project("one", {"train.py": text, "a.json": "4", "b.json": "5"})
    a, b = (bench.record(project, sys.executable, "train.py", "-f", f"{n}.json", run_id=n) for n in "ab")
    assert bench.verdict(a, b).confirmed


def test_caches_of_libraries_are_no_data_where_the_home_folder_is_the_project(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = IMPORT + "from pathlib import Path\n"
    text += "for name in ('.cache/matplotlib/fonts.json', '.config/matplotlib/rc', 'keep/fonts.json'):\n"
    text += "    Path(name).read_text()\ntrain([1, 2, 3, float(open('n').read())])\n"
    runs = []
    for side in "ab":
        caches = (".cache/matplotlib/fonts.json", ".config/matplotlib/rc", "keep/fonts.json")
        home = bench.project(side, {"train.py": text, "n": str(ord(side)), **dict.fromkeys(caches, side)})
        monkeypatch.setenv("HOME", str(home))
        monkeypatch.setenv("MPLCONFIGDIR", str(home / "keep"))
        runs.append(bench.record(home))
    found = bench.verdict(*runs)
    assert found.cause == "Confirmed: the file n is not the same.", found
    assert found.divergence and (found.divergence.tensor, found.divergence.others) == ("n", 0)
    told = {words: outcome for words, outcome in outcomes(found).items() if "matplotlib" in words}
    assert set(told.values()) <= {"not needed", "cleared"}, told


def test_a_variable_that_leads_to_the_project_makes_no_cache_of_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(bench.root))
    text = IMPORT + "train([1, 2, 3, float(open('n').read())])\n"
    found = bench.compared({"train.py": text, "n": "4"}, {"train.py": text, "n": "5"})
    assert found.divergence and found.divergence.tensor == "n", found
