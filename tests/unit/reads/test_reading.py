"""Undeclared data of a project, found in its code's literals and in observed runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.api.declaring import add_data
from orchestrator.errors import RunFailed
from orchestrator.model import RunRecord
from orchestrator.profile import load
from orchestrator.reads.advice import advice_there, of_profile, of_project
from orchestrator.runs.outcome import raise_for_outcome
from tests import forked_orch


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project of git that ignores all its data."""
    folder = tmp_path / "work" / "project"
    folder.mkdir(parents=True)
    for name in ("one/a.csv", "two/b.csv", "three/c.csv", "four/d.csv", "five.bin", "out/m.keras", "never/e"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("x" * 1000)
    (folder / ".env").write_text("TOKEN=1")
    (folder / ".gitignore").write_text("one\ntwo\nthree\nfour\nfive.bin\nout\nnever\n.env\nruns\n")
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    return folder


@pytest.mark.parametrize(
    "text", ["~nobody-of-that-name/x.csv", "x" * 290, "x" * 290 + "/y", "one/a.csv/b", "~"]
)
@pytest.mark.parametrize("file", ["train.py", "conf.json", "conf.yaml"])
def test_a_text_that_is_no_path_stops_nothing(project: Path, file: str, text: str) -> None:
    (project / "train.py").write_text("open('two/b.csv')\n")
    written = {
        ".py": f"open('two/b.csv')\nNAME = {text!r}\n",
        ".json": f'{{"data": "{text}"}}',
        ".yaml": f"data: {text!r}\n",
    }
    (project / file).write_text(written[Path(file).suffix])
    assert [each.name for each in of_project(project)] == ["two"]


NAMES = {
    "parser.add_argument('--data', default='one')": ["one"],
    "def main(data: str = typer.Option('one/a.csv')): ...": ["one"],
    "@click.option('--weights', default='five.bin')\ndef main(): ...": ["five.bin"],
    "open(Path('two') / 'b.csv'); glob('three/*.csv'); f'four/{name}.csv'": ["four", "three", "two"],
    "'''never/e holds what is never read'''": [],
    "model.save('out/m.keras'); load_dotenv('.env'); print('of one kind', '.')": [],
}


@pytest.mark.parametrize("code", NAMES)
def test_what_the_code_names_and_git_ignores_is_declared(project: Path, code: str) -> None:
    (project / "train.py").write_text(code)
    assert [each.name for each in of_project(project)] == NAMES[code]


READS = "import sys, yaml\nsettings = yaml.safe_load(open(sys.argv[1]))"
"""A script that names no file: which one it reads is only in the folder."""

SETTINGS = {
    "config.yaml": "# data\nbase: &b {lr: 0.1}\nuse: *b\ndata:\n  data_dir: ./one\n  kept: !!str two/b.csv\n",
    "config.yml": "- [five.bin, {train: ['./three/*.csv'], out_dir: out}]\n---\nval: four\n",
    "config.json": '{"train": {"files": ["one/a.csv", "two/b.csv"]}, "outputDir": "never", "log-dir": "out"}',
    "config.toml": 'lr = 0.1\n[data]\ntrain = "one"\nval = ["two", "five.bin"]\nsave_to = "never"\n',
}
NAMED_BY_SETTINGS = {
    "config.yaml": ["one", "two"],
    "config.yml": ["five.bin", "four", "three"],
    "config.json": ["one", "two"],
    "config.toml": ["five.bin", "one", "two"],
}


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("folder", ["", "conf"])
def test_what_a_configuration_file_beside_the_script_names_is_declared(
    project: Path, name: str, folder: str
) -> None:
    (project / "train.py").write_text(READS)
    (project / folder).mkdir(exist_ok=True)
    (project / folder / name).write_text(SETTINGS[name])
    assert [each.name for each in of_project(project)] == NAMED_BY_SETTINGS[name]


@pytest.mark.parametrize("name", SETTINGS)
def test_what_a_configuration_file_that_the_code_opens_names_is_declared(project: Path, name: str) -> None:
    (project / "jobs" / "first").mkdir(parents=True)
    (project / "jobs" / "first" / name).write_text(SETTINGS[name])
    (project / "train.py").write_text("print('reads nothing')")
    assert of_project(project) == ()
    (project / "train.py").write_text(f"open('jobs/first/{name}')")
    assert [each.name for each in of_project(project)] == NAMED_BY_SETTINGS[name]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pyproject.toml", '[tool.pytest.ini_options]\ntestpaths = ["one"]'),
        ("package.json", '{"files": ["one"]}'),
        ("orch.yaml", "version: 1\nname: p\ncloud: local\ntrain: {command: p}\ndata: [{source: one}]"),
        ("config.yaml", "data: /etc/hostname\nup: ..\nhome: ~\nsecret: .env\n"),
        ("config.yaml", "data: [one"),
        ("config.json", "[" * 5000),
        ("config.toml", "data = one"),
        ("config.yaml", "a: &a [one]\n" + "".join(f"a{n}: &a{n} [*a, *a]\n" for n in range(50)) + "b: \x01"),
    ],
)  # fmt: skip
def test_what_other_files_name_is_no_data(project: Path, name: str, text: str) -> None:
    (project / "train.py").write_text(READS)
    (project / name).write_text(text)
    assert of_project(project) == ()


def test_a_folder_elsewhere_is_declared_where_the_code_looks_for_it(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.reads.undeclared._TEMPORARY", ("/nowhere",))
    images = tmp_path / "images"
    (images / "train").mkdir(parents=True)
    (images / "train" / "a.png").write_text("png")
    (project / "train.py").write_text(f"DATA = {str(images)!r}")
    assert [(each.path, each.target) for each in of_project(project)] == [(images, str(images))]


def orch(project: Path, *words: str, code: int = 0) -> str:
    done = forked_orch.orch(*words, cwd=project)
    assert done.returncode == code, done.stdout + done.stderr
    return " ".join((done.stdout + done.stderr).split())


def test_record_says_what_it_read_and_init_declares_it(project: Path) -> None:
    """The name of the folder is in no code, so that only the run can tell it."""
    (project / "train.py").write_text(
        "import sys\nprint(open('ev'.replace('v', '') and sys.argv[1]).read(1))\n"
    )
    said = orch(project, "record", "--", sys.executable, "train.py", "never/e")
    sentence = "The script reads 1 kB that no profile declares: never/ (1 file)."
    assert f"Note: {sentence} Nothing is wrong here, but a machine would not have it." in said
    assert "add to orch.yaml: data: - source: never This command adds it: orch init --add-data never" in said
    orch(project, "init")
    profile = load(project / "orch.yaml")
    assert [tree.target for tree in profile.data] == ["never"]
    assert sentence not in orch(project, "record", "--", sys.executable, "train.py", "never/e")


def test_init_on_a_profile_that_is_there_says_what_it_lacks_and_how_to_add_it(project: Path) -> None:
    (project / "train.py").write_text("if __name__ == '__main__': print('hello')")
    orch(project, "init")
    (project / "train.py").write_text("open('one/a.csv')")
    assert [each.name for each in of_profile(load(project / "orch.yaml"))] == ["one"]
    said = orch(project, "init", code=2)
    assert "names 1 kB that no profile declares: one/ (1 file)." in said
    assert "Next: orch init --add-data one" in said
    orch(project, "init", "--add-data", "one")
    assert of_profile(load(project / "orch.yaml")) == ()


def test_a_run_that_failed_for_want_of_unsent_data_says_so_and_what_declares_them(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    (project / "train.py").write_text("open('one/a.csv')")
    (project / "orch.yaml").write_text(
        "version: 1\nname: demo\ncloud: local\ntrain: {command: python train.py}\n"
    )
    ended = {"code": 1, "signal": None, "reason": "failed", "detail": "The command ended with status 1."}
    record = RunRecord("r1", project / "runs" / "r1", ended, timings={"pull_s": 1.0})
    record.folder.mkdir(parents=True)
    (record.folder / "output.log").write_text("FileNotFoundError: [Errno 2] No such file: 'one/a.csv'\n")
    with pytest.raises(RunFailed) as failed:
        raise_for_outcome(record, str(project / "orch.yaml"))
    assert "The code names 1 kB that no profile declares: one/ (1 file)." in failed.value.message
    assert failed.value.next_command == "orch init --add-data one && orch train"
    (record.folder / "output.log").write_text("ValueError: something else\n")
    with pytest.raises(RunFailed) as failed:
        raise_for_outcome(record, str(project / "orch.yaml"))
    assert "no profile declares" not in failed.value.message


def test_before_a_run_on_a_machine_it_is_said_that_the_run_goes_on_without_it(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    (project / "train.py").write_text("open('one/a.csv')")
    assert advice_there(of_project(project), project / "orch.yaml") == (
        "The code names 1 kB that no profile declares: one/ (1 file). It is not sent, and this run goes on "
        "without it: where the script needs it, it fails there or trains on something else. Where it does "
        "not, ignore this.\nTo send it with the next run, add to orch.yaml:\ndata:\n  - source: one\n"
        "This command adds it: orch init --add-data one"
    )


@pytest.mark.parametrize("ignored", [True, False])
@pytest.mark.parametrize("code", ["open({file!r})", "os.listdir({folder!r})", "open('{folder}/' + name)"])
def test_data_of_the_project_that_are_named_by_an_absolute_path_are_put_there(
    project: Path, monkeypatch: pytest.MonkeyPatch, code: str, ignored: bool
) -> None:
    """Sent as code, or declared without a target, they would lie elsewhere on the machine."""
    monkeypatch.chdir(project)
    folder = project / "one"
    (project / "train.py").write_text(code.format(file=str(folder / "a.csv"), folder=str(folder)))
    if not ignored:
        (project / ".gitignore").write_text("runs\n")
    assert [(each.path, each.target) for each in of_project(project)] == [(folder, str(folder))]
    profile = project / "orch.yaml"
    head = "version: 1\nname: demo\ncloud: local\ntrain: {command: python train.py}\n"
    for before in ("", "data: []\n", "data:\n  - source: one\n"):
        profile.write_text(head + before)
        assert [each.target for each in of_profile(load(profile))] == [str(folder)]
        profile.write_text(add_data(profile, [Path("one")]))
        assert [(tree.source, tree.target) for tree in load(profile).data] == [(folder, str(folder))]
        assert of_profile(load(profile)) == (), "what lies where the code looks for it is declared"


def test_outputs_that_are_named_by_an_absolute_path_are_no_data(project: Path) -> None:
    out = project / "out"
    (project / "train.py").write_text(f"model.save({str(out / 'm.keras')!r}); OUT = {str(out)!r}")
    assert of_project(project) == ()
