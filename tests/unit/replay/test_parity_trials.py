"""Recorded and confirmed from end to end, with a framework that is imported at once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import orchestrator as orch
from orchestrator.cli.app import app
from orchestrator.model import RunRecord, Verdict
from orchestrator.parity.intervention import Intervention
from orchestrator.replay import recipe, sandbox
from orchestrator.replay.pool import ReplayPool
from orchestrator.replay.recipe import Recipe
from orchestrator.replay.replayer import Replayer
from orchestrator.replay.sandbox import Folders
from orchestrator.report.parity import letter
from orchestrator.runs import record_file
from orchestrator.session.project import Project
from orchestrator.session.session import local_agent

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parents[3]


@dataclass
class Bench:
    """Two project folders, `a` and `b`, beside each other, and a home folder."""

    root: Path
    monkeypatch: pytest.MonkeyPatch
    workshop: ReplayPool

    def project(self, name: str, files: Mapping[str, str]) -> Path:
        """A folder with these files; names may lead out of it."""
        folder = self.root / name
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in files.items():
            place = folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
        return folder

    def record(self, folder: Path, *command: str, run_id: str = "") -> RunRecord:
        self.monkeypatch.chdir(folder)
        words = command or (sys.executable, "train.py")
        return orch.record(words, steps=1, run_id=run_id or folder.name.replace("/", "-"), folder=self.root)

    def verdict(self, a: RunRecord, b: RunRecord) -> Verdict:
        assert a.exit["code"] == b.exit["code"] == 0, _logs(a, b)
        self.monkeypatch.chdir(self.root)
        found = orch.compare(
            a.folder, b.folder, folder=self.root, confirm=True, budget=120, pool=self.workshop
        )
        assert "internal error" not in {each.outcome for each in found.tried}, found.tried
        return found

    def compared(self, a: Mapping[str, str], b: Mapping[str, str]) -> Verdict:
        """Both projects recorded and confirmed."""
        return self.verdict(self.record(self.project("a", a)), self.record(self.project("b", b)))


def _logs(*records: RunRecord) -> str:
    return "\n".join((record.folder / "output.log").read_text() for record in records)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, orch_cache: Path) -> Iterator[Bench]:
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("ORCH_CACHE_HOME", str(orch_cache))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    with ReplayPool() as workshop:
        yield Bench(tmp_path / "work", monkeypatch, workshop)


def outcomes(verdict: Verdict) -> dict[str, str]:
    return {each.words: each.outcome for each in verdict.tried}


IMPORT = "from tests.unit.parity_framework import set_random_seed, train\n"

LEARN = IMPORT + "train([float(x) for x in open('data.csv').read().split(',')])\n"


def test_a_file_that_differs_is_confirmed(bench: Bench) -> None:
    files = {"train.py": LEARN, "data.csv": "1,2,3,4"}
    found = bench.compared(files, {**files, "data.csv": "1,2,3,5"})
    assert found.confirmed and "data.csv" in (found.cause or ""), found
    said = CliRunner().invoke(app, ["compare", "a", "b"]).stdout
    assert "Next: orch compare a b --confirm" in said


def test_programs_of_other_names_are_compared_by_what_they_contain(bench: Bench) -> None:
    text = IMPORT + "train([1, 2, 3, {}])\n"
    project = bench.project("one", {"train.py": text.format(4), "train_b.py": text.format(5)})
    a = bench.record(project, sys.executable, "train.py", run_id="a")
    b = bench.record(project, sys.executable, "train_b.py", run_id="b")
    found = bench.verdict(a, b)
    assert found.confirmed and "train_b.py" in (found.cause or ""), found


LISTED = """
import json
from pathlib import Path
cache = Path.home() / ".cache/matplotlib/fontlist.json"
if cache.exists():
    json.loads(cache.read_text())
else:
    cache.parent.mkdir(parents=True)
    cache.write_text("[]")
batch = [float(path.read_text()) for path in Path("data").iterdir()]
"""


def reversed_listing(bench: Bench, monkeypatch: pytest.MonkeyPatch, text: str) -> list[Path]:
    """Two projects whose data folders list their files in opposite orders: in memory, the last made comes
    first."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        pytest.skip("no file system in memory")
    home = Path(os.environ["HOME"])
    bench.root = Path(tempfile.mkdtemp(dir=memory))
    monkeypatch.setenv("HOME", str(bench.root / "home"))
    shutil.copytree(home, bench.root / "home")
    data = {f"data/{n}.txt": str(n) for n in (1, 2, 3, 4)}
    a = bench.project("a", {"train.py": text, **data})
    return [a, bench.project("b", {"train.py": text, **dict(reversed(data.items()))})]


def test_a_library_cache_is_not_the_cause_of_another_order(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first run makes the cache, the second one reads it, and the third reads another one."""
    folders = reversed_listing(bench, monkeypatch, IMPORT + LISTED + "train(batch)\n")
    try:
        a, b = (bench.record(folder) for folder in folders)
        found = bench.verdict(a, b)
        assert found.confirmed and "another order" in (found.cause or ""), found
        assert not found.divergence or "cache" not in found.divergence.tensor
        (Path(os.environ["HOME"]) / ".cache/matplotlib/fontlist.json").write_text("[1]")
        found = bench.verdict(bench.record(folders[0], run_id="c"), b)
        assert found.confirmed and "another order" in (found.cause or ""), found
        assert not found.divergence or "cache" not in found.divergence.tensor
    finally:
        shutil.rmtree(bench.root)


def test_a_file_beside_the_project_comes_before_the_path_of_the_folder(bench: Bench) -> None:
    text = IMPORT + "train([1, 2, 3, float(open('../.env').read().partition('=')[2])])\n"
    sides = [
        bench.project(f"{side}/project", {"train.py": text, "../.env": f"X={n}"}) for side, n in ("a1", "b2")
    ]
    found = bench.verdict(*[bench.record(folder, run_id=folder.parent.name) for folder in sides])
    assert found.confirmed and ".env" in (found.cause or "") and "path is" not in (found.cause or ""), found


SEEDED = """
import random
set_random_seed(int(open('.env').read().partition('=')[2]))
train([1, 2, 3, 4], [random.random(), 0, 0])
"""


def test_a_file_that_sets_the_seed_is_named_as_the_cause(bench: Bench) -> None:
    text = IMPORT + SEEDED
    found = bench.compared({"train.py": text, ".env": "SEED=1"}, {"train.py": text, ".env": "SEED=2"})
    assert found.confirmed and ".env" in (found.cause or ""), found


def test_an_overwritten_file_that_sets_the_seed_is_named_as_the_cause(bench: Bench) -> None:
    project = bench.project("one", {"train.py": IMPORT + SEEDED, ".env": "SEED=1"})
    a = bench.record(project, run_id="a")
    bench.project("one", {".env": "SEED=2"})
    b = bench.record(project, run_id="b")
    found = bench.verdict(a, b)
    assert found.confirmed and ".env" in (found.cause or ""), found


def test_an_interpreter_that_was_typed_as_a_relative_path(bench: Bench) -> None:
    files = {"train.py": LEARN, "data.csv": "1,2,3,4"}
    sides = [bench.project("a", files), bench.project("b", {**files, "data.csv": "1,2,3,5"})]
    for folder in sides:
        (folder / ".venv/bin").mkdir(parents=True)
        (folder / ".venv/bin/python").symlink_to(sys.executable)
        (folder / ".venv/pyvenv.cfg").write_text((Path(sys.prefix) / "pyvenv.cfg").read_text())
        (folder / ".venv/lib").symlink_to(Path(sys.prefix) / "lib")
    found = bench.verdict(*[bench.record(folder, ".venv/bin/python", "train.py") for folder in sides])
    assert found.confirmed and "data.csv" in (found.cause or ""), found


def test_what_a_notebook_passes_to_its_kernel_is_no_difference(bench: Bench) -> None:
    text = (
        IMPORT
        + "import sys\nopen(sys.argv[2]).read()\nn = float(open('n.txt').read())\ntrain([1, 2, 3, n])\n"
    )
    kernels = {"kernel-1.json": "{1}", "kernel-2.json": "{2}"}
    project = bench.project("one", {"ipykernel_launcher.py": text, **kernels})
    runs = []
    for n in ("1", "2"):
        (project / "n.txt").write_text(n)
        command = (sys.executable, "ipykernel_launcher.py", "-f", f"kernel-{n}.json")
        runs.append(bench.record(project, *command, run_id=f"r{n}"))
    found = bench.verdict(*runs)
    assert found.confirmed and "n.txt" in (found.cause or ""), found
    assert "kernel-" not in found.detail and "kernel-" not in str(found.tried), found


def test_repetitions_have_the_home_folder_that_was_recorded(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = IMPORT + "from pathlib import Path\nn = float((Path.home() / 'n.txt').read_text())\n"
    text += "train([1, 2, n, float(open('data.csv').read())])\n"
    (Path(os.environ["HOME"]) / "n.txt").write_text("3")
    files = {"train.py": text, "data.csv": "4"}
    a = bench.record(bench.project("a", files))
    b = bench.record(bench.project("b", {**files, "data.csv": "5"}))
    monkeypatch.setenv("HOME", str(bench.root))
    found = bench.verdict(a, b)
    assert found.confirmed and "data.csv" in (found.cause or ""), found


def test_what_orch_itself_cannot_do_is_no_trial_of_a_cause(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy cannot be laid out for one candidate: it is not cleared, and not passed off as not tried."""
    files = {"train.py": LEARN, "data.csv": "1,2,3,4"}
    a = bench.record(bench.project("a", files))
    b = bench.record(bench.project("b", {**files, "data.csv": "1,2,3,5"}))
    put = sandbox._put_all

    def broken(seats: Any, imposed: Intervention, program: Path | None) -> None:
        if any(name.endswith("data.csv") for name in imposed.files):
            raise FileNotFoundError(2, "No such file or directory", "train.py")
        put(seats, imposed, program)

    monkeypatch.setattr(sandbox, "_put_all", broken)
    found = orch.compare(a.folder, b.folder, folder=bench.root, confirm=True, pool=bench.workshop)
    outcome = next(each for each in found.tried if each.topic == "data")
    assert (outcome.outcome, found.confirmed) == ("internal error", False)
    assert "Orch failed" in letter(found.as_json()) and "Cleared     the file data.csv" not in letter(
        found.as_json()
    )


def test_a_program_that_cannot_be_begun_is_a_fault_of_ours(bench: Bench) -> None:
    project = bench.project("a", {"other.py": "print(1)"})
    known = Recipe((sys.executable, "train.py"), project, sys.executable)
    with Replayer(known, Folders(project), local_agent(Project.at(bench.root)), {}, 1) as runs:
        trial = runs.run(Intervention(), time.monotonic() + 60)
    assert trial.fault and "train.py" in trial.why


def test_what_sets_a_seed_and_cannot_be_tried_is_suspected_and_the_seed_is_not_the_cause(
    bench: Bench,
) -> None:
    """The file is called like a secret, so its content was not kept."""
    text = IMPORT + SEEDED.replace("'.env'", "'token.txt'")
    project = bench.project("one", {"train.py": text, "token.txt": "SEED=1"})
    a = bench.record(project, run_id="a")
    bench.project("one", {"token.txt": "SEED=2"})
    found = bench.verdict(a, bench.record(project, run_id="b"))
    assert not found.confirmed and str(found.cause).startswith("Suspected: the file token.txt"), found
    told = {each.topic: each.outcome for each in found.tried if each.kind == "difference"}
    assert told == {"data": "not tried", "seed": "part"}, found.tried
    assert not list(bench.root.glob("runs/*/kept/*"))[2:], "only the program, twice the same"


def test_what_is_kept_is_for_its_owner_alone(bench: Bench) -> None:
    text = IMPORT + "open('.env').read()\ntrain([1, 2, 3, 4])\n"
    record = bench.record(bench.project("one", {"train.py": text, ".env": "PASSWORD=1"}))
    kept = list((record.folder / "kept").iterdir())
    assert len(kept) == 2 and {path.stat().st_mode & 0o777 for path in kept} == {0o600}
    assert (record.folder / "kept").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("home", ["work", "work/a", "home"])
def test_a_file_that_is_gone_since_hides_no_project(bench: Bench, home: str) -> None:
    """One side read a file whose folder is gone: what stands for it is mounted around the project."""
    text = IMPORT + "import os, sys\nif os.path.exists(sys.argv[1]): open(sys.argv[1]).read()\n"
    text += "open('../around.txt').read()\n" + "train([1, 2, 3, float(open('data.csv').read())])\n"
    files = {"train.py": text, "../around.txt": "", "data.csv": "4"}
    gone = bench.root.parent / home / "gone/x.txt"
    sides = [bench.project("a/project", files), bench.project("b/project", {**files, "data.csv": "5"})]
    gone.parent.mkdir(parents=True)
    gone.write_text("x")
    a = bench.record(sides[0], sys.executable, "train.py", str(gone), run_id="a")
    shutil.rmtree(gone.parent)
    b = bench.record(sides[1], sys.executable, "train.py", str(gone), run_id="b")
    found = bench.verdict(a, b)
    assert found.confirmed and "data.csv" in (found.cause or ""), found
    assert "not tried" not in {each.outcome for each in found.tried}, found.tried


def piped(bench: Bench, name: str, text: str, *command: str) -> RunRecord:
    """Recorded by the command line, with `text` on standard input."""
    project = bench.project(name, {})
    orch_ = Path(sys.executable).with_name("orch")
    words = [orch_, "record", "--steps", "1", "--run-id", name, "--json", "--", *command]
    subprocess.run(
        words, cwd=project, input=text.encode(), check=True, timeout=120, stdout=subprocess.DEVNULL
    )
    found = record_file.read(project / "runs" / name)
    assert found
    return found


def test_a_program_that_comes_by_standard_input_trains_and_is_repeated(bench: Bench) -> None:
    texts = [IMPORT + f"train([1, 2, 3, {n}])\n" for n in (4, 5)]
    a, b = (piped(bench, name, text, sys.executable, "-") for name, text in zip("ab", texts, strict=True))
    found = bench.verdict(a, b)
    assert found.confirmed and found.cause == "Confirmed: standard input is not the same.", found


def test_data_that_come_by_standard_input_are_repeated(bench: Bench) -> None:
    text = IMPORT + "import sys\ntrain([1, 2, 3, float(sys.stdin.readline())])\n"
    for name in "ab":
        bench.project(name, {"train.py": text})
    a, b = (piped(bench, name, f"{n}\n", sys.executable, "train.py") for n, name in enumerate("ab"))
    found = bench.verdict(a, b)
    assert found.confirmed and found.cause == "Confirmed: standard input is not the same.", found


def test_standard_input_that_never_ends_holds_nothing_up_and_is_no_difference(bench: Bench) -> None:
    """The command reads nothing of it."""
    project = bench.project("a", {"train.py": IMPORT + "train([1, 2, 3, 4])\n"})
    reader, writer = os.pipe()
    os.write(writer, b"x")
    bench.monkeypatch.chdir(project)
    with os.fdopen(reader, "rb") as source:
        done = orch.record((sys.executable, "train.py"), steps=1, folder=bench.root, stdin=source)
        assert done.exit["code"] == 0
        noted = recipe.read_recipe(done.folder)
        assert noted and noted.stdin is None
        os.close(writer)


@pytest.mark.parametrize(
    ("asks", "words"),
    [
        ("os.path.exists('../flag')", "the files around the working folder"),
        ("'b2' in os.getcwd()", "the working folder's path is"),
    ],
)
def test_a_path_is_distinguished_from_the_files_around_it(bench: Bench, asks: str, words: str) -> None:
    """That a file is there is asked without opening it."""
    text = IMPORT + f"import os\ntrain([1, 2, 3, 5 if {asks} else 4])\n"
    sides = [bench.project("a1/project", {"train.py": text})]
    sides += [bench.project("b2/project", {"train.py": text, "../flag": ""})]
    found = bench.verdict(*[bench.record(folder, run_id=folder.parent.name) for folder in sides])
    assert found.confirmed and f"Confirmed: {words}" in (found.cause or ""), found


def test_a_repetition_that_orch_cannot_begin_is_a_fault_of_ours(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"train.py": LEARN, "data.csv": "1,2,3,4"}
    a = bench.record(bench.project("a", files))
    b = bench.record(bench.project("b", {**files, "data.csv": "1,2,3,5"}))

    def broken(*_: Any) -> None:
        raise FileNotFoundError(2, "No such file or directory", "train.py")

    monkeypatch.setattr(sandbox, "_put_all", broken)
    found = orch.compare(a.folder, b.folder, folder=bench.root, confirm=True, pool=bench.workshop)
    assert not found.confirmed and [each.outcome for each in found.tried] == ["internal error"]
