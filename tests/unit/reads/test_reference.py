"""The reference side of parity: the user's own folder, read as it is and never written, and what it opens."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from orchestrator import jobs
from orchestrator.errors import LocalError
from orchestrator.hosts.here import HereHost
from orchestrator.model import Job
from orchestrator.profile import Profile, load
from orchestrator.reads.opened import Opened, read_opened
from orchestrator.reads.reference import Reference, in_place
from orchestrator.reads.sent import not_sent, sent_of
from orchestrator.reads.undeclared import Undeclared, undeclared
from orchestrator.reads.undeclared_words import profile_lines, undeclared_sentence
from orchestrator.replay import working_folders
from orchestrator.session.project import Project
from orchestrator.session.session import local_agent

pytestmark = pytest.mark.processes

PROFILE = "version: 1\nname: demo\ncloud: local\ntrain: {command: python train.py}\n"


@dataclass
class Ran:
    """One reference run: what it printed, and what of it the machine would lack."""

    output: str
    found: tuple[Undeclared, ...]
    opened: Opened
    reason: str
    refused: str
    profile: Profile

    @property
    def names(self) -> list[str]:
        return [each.name for each in self.found]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, orch_cache: Path) -> Path:
    """A project of git with 3 ignored files of data, and a home folder beside it."""
    folder = tmp_path / "outer" / "project"
    (folder / "my_data" / "train").mkdir(parents=True)
    for number in range(3):
        (folder / "my_data" / "train" / f"{number}.bin").write_bytes(bytes([number]) * 1000)
    (folder / ".gitignore").write_text("my_data/\nlocal_settings.py\nout/\n")
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ORCH_CACHE_HOME", str(orch_cache))
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    return folder


def ran(project: Path, script: str, profile: str = PROFILE, begun: float | None = None) -> Ran:
    """Run `script` as the reference side of `train --local-parity` does."""
    (project / "train.py").write_text(textwrap.dedent(script))
    (project / "orch.yaml").write_text(profile)
    wanted = load(project / "orch.yaml")
    agent = local_agent(Project(project))
    host = HereHost()
    output: list[bytes] = []
    with Reference.of(wanted).laid_out(agent.base, "reference") as laid:
        job = Job(
            run_id="reference",
            python=sys.executable,
            observe_steps=1,
            env={**laid.settings, **wanted.train.environment(), **laid.environment},
            **laid.job(wanted.train.command),
        )
        jobs.start(host, agent, job)
        jobs.follow(host, agent, "reference", 0, output.append)
        refused = laid.refused()
    ended = jobs.state(host, agent, "reference").exit
    opened = read_opened(Path(jobs.run_dir(agent, "reference")) / "observe")
    found = undeclared(opened, sent_of(wanted), laid.view, outputs=wanted.train.outputs, begun=begun)
    assert ended is not None
    return Ran(b"".join(output).decode(), found, opened, ended.reason, refused, wanted)


def contents(folder: Path) -> dict[str, bytes]:
    files = (p for p in folder.rglob("*") if p.is_file() and not {".orch", ".git"} & set(p.parts))
    return {str(path): path.read_bytes() for path in files}


READS = "print(len(open('my_data/train/0.bin', 'rb').read()))\n"


def test_a_git_ignored_folder_is_read_and_named_with_its_size_and_the_lines_to_add(project: Path) -> None:
    run = ran(project, READS)
    assert run.output.strip() == "1000"
    assert (
        undeclared_sentence(run.found)
        == "The script reads 3 kB that no profile declares: my_data/ (3 files)."
    )
    assert profile_lines(run.found, run.profile.path) == "data:\n  - source: my_data"
    assert (run.found[0].path, run.found[0].target) == (project / "my_data", None)


def test_the_sample_of_a_bucket_is_read_where_the_script_looks_and_is_declared(project: Path) -> None:
    profile = PROFILE + "data: [{source: 's3://a-bucket/some/images', sample: ['a/*']}]\n"
    (project / "orch.yaml").write_text(profile)
    (tree,) = load(project / "orch.yaml").data
    (tree.source / "a").mkdir(parents=True)
    (tree.source / "a" / "1.bin").write_bytes(b"one")
    run = ran(project, "import os; print(os.listdir('images'), open('images/a/1.bin').read())\n", profile)
    assert run.output.strip() == "['a'] one"
    assert (run.found, run.refused) == ((), "")
    assert not (project / "images").exists()


def test_what_is_declared_or_sent_is_not_named(project: Path) -> None:
    (project / "settings.json").write_text("{}")
    script = READS + "open('settings.json').read(); import train\n"
    assert ran(project, script, PROFILE + "data: [{source: my_data}]\n").found == ()


def test_a_script_writes_as_it_likes_and_the_users_folder_stays_as_it_was(project: Path) -> None:
    (project / "out").mkdir()
    (project / "out" / "log.txt").write_text("before\n")
    (project / "runs" / "old").mkdir(parents=True)
    (project / "large.bin").write_bytes(b"x" * (5 << 20))
    script = """\
        import os
        from pathlib import Path
        with open("out/log.txt", "a") as log: log.write("more\\n")
        Path("out/new/model").parent.mkdir(); Path("out/new/model").write_text("m")
        os.makedirs("runs/exp"); open("runs/exp/events", "w").write("e")
        with open("large.bin", "r+b") as file: file.write(b"y")
        os.remove("my_data/train/2.bin"); open("my_data/cache.npy", "wb").write(b"c")
        print(Path("out/log.txt").read_text().split(), open("large.bin", "rb").read(2))
    """
    (project / "train.py").write_text(textwrap.dedent(script))
    (project / "orch.yaml").write_text(PROFILE)
    before = contents(project)
    run = ran(project, script)
    assert run.output.strip() == "['before', 'more'] b'yx'", run.output
    assert run.reason == "completed" and contents(project) == before


def test_data_beside_the_project_are_found_and_reported_as_out_of_reach(project: Path) -> None:
    (project.parent / "shared" / "train").mkdir(parents=True)
    (project.parent / "shared" / "train" / "a.csv").write_text("1,2")
    run = ran(project, "print(open('../shared/train/a.csv').read())\n")
    assert run.output.strip() == "1,2", run.output
    assert [(each.name, each.reachable) for each in run.found] == [("../shared", False)]
    assert "have the script read shared" in profile_lines(run.found, run.profile.path)


def test_an_absolute_path_is_declared_with_its_target(project: Path, tmp_path: Path) -> None:
    images = tmp_path / "mnt" / "images"
    images.mkdir(parents=True)
    (images / "a.png").write_bytes(b"png")
    script = f"print(open({str(images / 'a.png')!r}).read())\n"
    run = ran(project, script)
    assert [(each.path, each.target) for each in run.found] == [(images, str(images))]
    elsewhere = PROFILE + f"data: [{{source: {images}, target: images}}]\n"
    again = run_again(project, script, elsewhere)
    assert again.names == [str(images)], "the machine has them in another place than the script names"
    assert run_again(project, "print(open('images/a.png').read())\n", elsewhere).found == ()


def run_again(project: Path, script: str, profile: str) -> Ran:
    agent = local_agent(Project(project))
    subprocess.run(["rm", "-rf", jobs.run_dir(agent, "reference")], check=True)
    return ran(project, script, profile)


def test_a_module_that_git_ignores_and_a_link_that_leads_out_are_named(project: Path, tmp_path: Path) -> None:
    (project / "local_settings.py").write_text("RATE = 1\n")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "x.bin").write_bytes(b"x")
    (project / "linked").symlink_to(tmp_path / "elsewhere")
    run = ran(project, "import local_settings; print(open('linked/x.bin').read(), local_settings.RATE)\n")
    assert run.output.strip() == "x 1"
    assert run.names == ["linked", "local_settings.py"]


def test_a_folder_that_is_only_listed_is_named_unless_the_run_writes_into_it(project: Path) -> None:
    for name in ("listed", "globbed", "iterated", "out"):
        (project / name).mkdir()
        (project / name / "old.txt").write_text("old")
    (project / ".gitignore").write_text("my_data\nlisted\nglobbed\niterated\nout\n")
    script = """\
        import glob, os
        from pathlib import Path
        print(os.listdir("listed"), glob.glob("globbed/*.txt"), list(Path("iterated").iterdir()))
        print(os.listdir("out")); open("out/x", "w").write("x")
    """
    assert ran(project, script).names == ["globbed", "iterated", "listed"]


def test_folders_that_a_walk_through_the_project_met_are_not_named(project: Path) -> None:
    assert ran(project, "import os; print(len(list(os.walk('.'))))\n").names == []


def test_caches_of_libraries_the_systems_files_and_temporary_ones_are_no_data(
    project: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "home" / ".cache" / "fontlist.json"
    cache.parent.mkdir(parents=True)
    cache.write_text("{}")
    script = """\
        import tempfile
        from pathlib import Path
        open(Path.home() / ".cache/fontlist.json").read(); open("/etc/hostname").read()
        with tempfile.NamedTemporaryFile() as file: open(file.name).read()
    """
    run = ran(project, script)
    assert run.reason == "completed" and run.found == (), run.output


def test_weights_of_pytorch_are_data_and_no_path_file_of_python(project: Path) -> None:
    (project / "my_data/start.pth").write_text("weights")
    assert ran(project, "print(open('my_data/start.pth').read())\n").names == ["my_data"]


HUB = ".cache/huggingface/hub/datasets--me--tiny"


def test_a_data_set_that_a_hub_keeps_in_its_cache_is_data(project: Path, tmp_path: Path) -> None:
    """As the hub's library lays it out: a link to a blob, and files of its own beside."""
    hub = tmp_path / "home" / HUB
    for name, text in (("blobs/cb8d03", "1,2"), ("refs/main", "29295f94"), (".no_exist/29295f94/x", "")):
        (hub / name).parent.mkdir(parents=True, exist_ok=True)
        (hub / name).write_text(text)
    (hub / "snapshots/29295f94").mkdir(parents=True)
    (hub / "snapshots/29295f94/train.csv").symlink_to("../../blobs/cb8d03")
    script = f"""\
        from pathlib import Path
        hub = Path.home() / "{HUB}"
        revision = (hub / "refs/main").read_text()
        print((hub / "snapshots" / revision / "train.csv").read_text())
    """
    run = ran(project, script)
    assert run.names == [f"~/{HUB}"], run.output
    (found,) = run.found
    assert (found.path, found.is_folder, found.reachable) == (hub, True, False)


@pytest.mark.parametrize(
    "place", ["torch/hub/checkpoints/resnet.pth", "kagglehub/datasets/me/tiny/versions/1/train.csv"]
)
def test_what_other_libraries_fetched_is_data(project: Path, tmp_path: Path, place: str) -> None:
    file = tmp_path / "home/.cache" / place
    file.parent.mkdir(parents=True)
    file.write_text("1,2")
    script = f"from pathlib import Path; (Path.home() / '.cache/{place}').read_text()\n"
    (name,) = ran(project, script).names
    assert name.startswith("~/.cache/") and f"~/.cache/{place}".startswith(f"{name}/")


def test_what_the_run_itself_fetched_is_not_lacking(project: Path) -> None:
    script = f"""\
        from pathlib import Path
        hub = Path.home() / "{HUB}"
        (hub / "blobs").mkdir(parents=True); (hub / "snapshots/1").mkdir(parents=True)
        (hub / "blobs/a.incomplete").write_text("1,2"); (hub / "blobs/a.incomplete").rename(hub / "blobs/a")
        (hub / "snapshots/1/t.csv").symlink_to("../../blobs/a")
        print((hub / "snapshots/1/t.csv").read_text())
    """
    run = ran(project, script, begun=time.time() - 1)
    assert run.found == () and "1,2" in run.output


def test_what_the_machine_fetched_anew_is_not_lacking(project: Path, tmp_path: Path) -> None:
    hub, there = tmp_path / "home" / HUB, []
    for name in ("same", "other"):
        path = hub / "snapshots/1" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
        there.append(str(path))
    opened = Opened(
        dict.fromkeys(there, "python"),
        (),
        frozenset(),
        (),
        dict.fromkeys(there, str(hub)),
        dict(zip(there, "ab", strict=True)),
    )
    (project / "orch.yaml").write_text(PROFILE)
    sent, view = sent_of(load(project / "orch.yaml")), in_place(project)
    assert undeclared(opened, sent, view, there={"a", "b"}) == ()
    assert [each.name for each in undeclared(opened, sent, view, there={"a"})] == [f"~/{HUB}"]


@pytest.mark.parametrize(
    "spelled",
    [
        'Path.home() / ".config/job/seed"',
        'Path.home() / ".config" / "job" / "seed"',
        'os.path.expanduser("~/.config/job/seed")',
    ],
)
def test_a_hidden_file_of_the_home_folder_that_the_code_names(
    project: Path, tmp_path: Path, spelled: str
) -> None:
    for place in (".config/job/seed", ".config/library/settings"):
        file = tmp_path / "home" / place
        file.parent.mkdir(parents=True)
        file.write_text("7")
    script = f"""\
        import os
        from pathlib import Path
        open({spelled}).read()
        open(Path.home().joinpath(*"|config|library|settings".replace("|c", ".c").split("|"))).read()
    """
    assert ran(project, script).names == ["~/.config/job/seed"]


def test_a_write_into_the_users_data_is_refused_and_its_path_is_known(project: Path) -> None:
    place = project / "my_data" / "index.txt"
    run = ran(project, f"open({str(place)!r}, 'w')\n")
    assert (run.reason, run.refused, place.exists()) == ("failed", str(place), False)


def test_of_a_large_folder_only_the_part_that_was_read_is_named(project: Path) -> None:
    (project / "my_data" / "raw").mkdir()
    (project / "my_data" / "raw" / "all.bin").write_bytes(b"r" * (6 << 20))
    assert ran(project, READS).names == ["my_data/train"]


def test_a_folder_of_very_many_files_is_read_through_one_link(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, most in (("MANY", 40), ("WIDE", 20)):
        monkeypatch.setattr(f"orchestrator.replay.copier.{name}", most)
    many = project / "my_data" / "many"
    many.mkdir()
    for number in range(50):
        (many / f"{number:04}").touch()
    script = """\
        import os
        open("my_data/many/0001").read()
        print(len(os.listdir("my_data/many")), os.path.islink("my_data/many"))
    """
    run = ran(project, script)
    assert run.output.split() == ["50", "True"] and run.names == ["my_data"]


def test_folders_of_the_user_that_are_called_like_ours_are_not_written(project: Path) -> None:
    for name in ("copy-0", "copy-1", "under-0", "above-1"):
        (project.parent / name).mkdir()
        (project.parent / name / "mine.txt").write_text("mine")
    run = ran(project, "open('../shared.txt', 'w')\n")
    assert run.reason == "completed" and not (project.parent / "shared.txt").exists()
    for name in ("copy-0", "copy-1", "under-0", "above-1"):
        assert [path.name for path in (project.parent / name).iterdir()] == ["mine.txt"]


def test_a_file_that_only_a_descriptor_showed_is_declared_at_its_place_in_the_project(project: Path) -> None:
    """A large file is linked to, so that the system knows it by its place in the user's folder."""
    (project / "my_data" / "large.bin").write_bytes(b"x" * (5 << 20))
    script = "import os; open(os.path.realpath('my_data/large.bin')).read(1)\n"
    run = ran(project, script)
    assert [(each.name, each.target) for each in run.found] == [("my_data", None)]


def test_a_project_that_cannot_be_copied_is_refused_with_what_is_in_the_way(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "train.py")

    monkeypatch.setattr("orchestrator.replay.copier.shutil.copy2", full)
    with pytest.raises(LocalError, match="No space left on device"):
        ran(project, READS)


def test_what_was_not_sent_is_tried_as_absent_although_no_run_opens_it(project: Path, tmp_path: Path) -> None:
    """A script that only asks whether its data exist acts on them all the same."""
    (project / "elsewhere").symlink_to(tmp_path / "home")
    (project / "train.py").write_text("")
    (project / "src").mkdir()
    (project / "src" / "model.py").write_text("")
    (project / "orch.yaml").write_text(PROFILE)
    names = not_sent(sent_of(load(project / "orch.yaml")))
    assert names == ("elsewhere", "my_data")

    (whole,) = working_folders.not_sent(project, names, "A")
    assert [part.words.split(" is ")[0] for part in whole.parts] == list(names)
    assert whole.imposed is not None
    base = tmp_path / "base"
    copy = Reference(project).lay_out(base / "root", whole.imposed, base)
    assert sorted(each.name for each in copy.cwd.iterdir()) == [".gitignore", "orch.yaml", "src", "train.py"]
    assert (project / "my_data" / "train" / "0.bin").exists()


def test_declared_data_were_sent(project: Path) -> None:
    (project / "orch.yaml").write_text(PROFILE + "data: [{source: my_data}]\n")
    assert not_sent(sent_of(load(project / "orch.yaml"))) == ()
