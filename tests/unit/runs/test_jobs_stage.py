"""The working folder of a run: how trees are laid out in it, and what of it counts as the run's own."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from pathlib import Path

import pytest

from orchestrator import jobs
from orchestrator.errors import UsageError
from orchestrator.hosts.here import HereHost
from orchestrator.model import Agent, Entry, Job, TreeLink
from orchestrator.runtime.transfer.outputs import matcher
from orchestrator.stack.runtime_files import lay_out

pytestmark = pytest.mark.processes

HOST = HereHost()


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    base = tmp_path / "base"
    base.mkdir()
    return Agent(sys.executable, str(lay_out(base)), str(base))


@pytest.fixture
def code(tmp_path: Path) -> Path:
    top = tmp_path / "code"
    (top / "pkg" / "empty").mkdir(parents=True)
    (top / "pkg" / "mö dule.py").write_text("x = 1\n")
    (top / "run.sh").write_text("echo hi\n")
    (top / "run.sh").chmod(0o750)
    (top / "link").symlink_to("pkg/mö dule.py")
    (top / "dangling").symlink_to("nowhere")
    return top


@pytest.fixture
def data(tmp_path: Path) -> Path:
    top = tmp_path / "data"
    (top / "train").mkdir(parents=True)
    (top / "train" / "a.bin").write_bytes(b"a" * 1000)
    return top


def run(agent: Agent, text: str, *trees: TreeLink, run_id: str = "r", cwd: str = ".", **more: object) -> str:
    """The output of a shell script that ran in the trees, which must have ended well."""
    job = Job(run_id, ("sh", "-ec", text), sys.executable, cwd=cwd, trees=trees)
    jobs.start(HOST, agent, job, **more)  # type: ignore[arg-type]
    output = bytearray()
    jobs.follow(HOST, agent, run_id, 0, output.extend)
    ended = jobs.state(HOST, agent, run_id).exit
    assert ended and ended.reason == "completed", (ended, output)
    return output.decode()


def work(agent: Agent, run_id: str = "r") -> Path:
    return Path(jobs.run_dir(agent, run_id)) / "work"


def copied(code: Path, target: str = ".") -> TreeLink:
    return TreeLink(str(code), target, copied=True)


def shared(data: Path, target: str = "data") -> TreeLink:
    return TreeLink(str(data), target)


def paths(agent: Agent, run_id: str = "r") -> set[str]:
    return {entry.path for entry in jobs.outputs(HOST, agent, run_id)}


# ---------------------------------------------------------------- laying out


def test_a_copied_tree_is_the_same_tree_of_its_own(agent: Agent, code: Path) -> None:
    run(agent, "true", copied(code))
    for here in (code, *code.rglob("*")):
        there = work(agent) / here.relative_to(code)
        assert stat.S_IMODE(there.lstat().st_mode) == stat.S_IMODE(here.lstat().st_mode)
        if here.is_symlink():
            assert there.readlink() == here.readlink()
        elif here.is_file():
            assert there.read_bytes() == here.read_bytes() and not there.samefile(here)
        else:
            assert there.is_dir()
    assert sum(1 for _ in work(agent).rglob("*")) == sum(1 for _ in code.rglob("*"))


def test_a_shared_tree_shares_its_bytes_but_not_its_folders(agent: Agent, code: Path, data: Path) -> None:
    run(agent, "echo new > data/train/new; rm data/train/a.bin", copied(code), shared(data))
    assert (data / "train" / "a.bin").read_bytes() == b"a" * 1000
    assert not (data / "train" / "new").exists()
    run(agent, "true", copied(code), shared(data), run_id="s")
    assert (work(agent, "s") / "data/train/a.bin").samefile(data / "train" / "a.bin")
    assert not (work(agent, "s") / "data/train/a.bin").is_symlink()


def test_across_file_systems_data_is_linked_by_name(agent: Agent, code: Path, tmp_path: Path) -> None:
    other = Path("/dev/shm")
    if not other.is_dir() or other.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second file system to link across")
    far = other / f"orch-test-{os.getpid()}"
    far.mkdir()
    try:
        (far / "a").write_text("far away")
        assert run(agent, "cat data/a", copied(code), shared(far)) == "far away"
        assert (work(agent) / "data/a").readlink() == far / "a"
        assert paths(agent) == set()
    finally:
        (far / "a").unlink()
        far.rmdir()


def test_cwd_is_inside_the_working_folder(agent: Agent, code: Path) -> None:
    assert run(agent, "pwd", copied(code), cwd="pkg").strip() == str(work(agent) / "pkg")


def test_the_inner_tree_wins(agent: Agent, code: Path, data: Path) -> None:
    (code / "data").mkdir()
    (code / "data" / "train").write_text("a file where the data has a folder")
    (code / "data" / "kept").write_text("kept")
    assert run(agent, "wc -c < data/train/a.bin; cat data/kept", shared(data), copied(code)) == "1000\nkept"


def test_our_own_folder_inside_the_project_is_not_laid_out(code: Path) -> None:
    base = code / ".orch" / "here"
    base.mkdir(parents=True)
    agent = Agent(sys.executable, str(lay_out(base)), str(base))
    assert run(agent, "ls -A .orch", copied(code)) == ""


def test_a_single_file_as_a_tree(agent: Agent, code: Path, data: Path) -> None:
    link = TreeLink(str(data / "train" / "a.bin"), "deep/er/one.bin")
    assert run(agent, "wc -c < deep/er/one.bin", copied(code), link).strip() == "1000"


@pytest.mark.parametrize("target", ["..", "../data", "a/../../b"])
def test_no_target_leaves_the_working_folder(agent: Agent, code: Path, data: Path, target: str) -> None:
    with pytest.raises(UsageError, match="outside"):
        run(agent, "true", copied(code), shared(data, target))
    assert jobs.state(HOST, agent, "r").state == "absent"


def test_a_missing_tree_and_a_missing_folder_are_named(agent: Agent, code: Path) -> None:
    with pytest.raises(UsageError, match="not-there is not on this machine"):
        run(agent, "true", copied(code), TreeLink("/not-there", "data"))
    with pytest.raises(UsageError, match="'no/folder' does not exist"):
        run(agent, "true", copied(code), run_id="s", cwd="no/folder")


def test_a_start_that_was_refused_can_be_mended(agent: Agent, code: Path, tmp_path: Path) -> None:
    late = tmp_path / "late"
    with pytest.raises(UsageError):
        run(agent, "cat data/x", copied(code), shared(late))
    late.mkdir()
    (late / "x").write_text("here now")
    assert run(agent, "cat data/x", copied(code), shared(late)) == "here now"


# ---------------------------------------------------------------- absolute targets


def test_an_absolute_target_is_a_link_there(agent: Agent, code: Path, data: Path, tmp_path: Path) -> None:
    place = tmp_path / "made" / "mnist"
    text = f"wc -c < {place}/train/a.bin"
    assert run(agent, text, copied(code), shared(data, str(place))).strip() == "1000"
    assert place.readlink() == data
    other = tmp_path / "base" / "trees" / "other"
    other.mkdir(parents=True)
    place.unlink()
    place.symlink_to(other)  # ours, of an earlier run: another tree may take its place
    assert run(agent, text, copied(code), shared(data, str(place)), run_id="s").strip() == "1000"


def test_an_absolute_target_of_its_own_is_a_copy(
    agent: Agent, code: Path, data: Path, tmp_path: Path
) -> None:
    place = tmp_path / "place"
    run(
        agent,
        f"echo changed > {place}/train/a.bin",
        TreeLink(str(data), str(place), copied=True),
        copied(code),
    )
    assert (data / "train" / "a.bin").read_bytes() == b"a" * 1000


def test_what_lies_at_an_absolute_target_is_never_replaced(
    agent: Agent, code: Path, data: Path, tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to("/usr")
    for name in ("folder", "file", "link"):
        place = tmp_path / name
        with pytest.raises(UsageError, match="not replaced"):
            run(agent, "true", copied(code), shared(data, str(place)), run_id=name)
        assert os.path.lexists(place) and not (place / "train").exists()


def test_data_that_lies_there_already_stays(agent: Agent, code: Path, data: Path) -> None:
    assert run(agent, f"ls {data}", copied(code), shared(data, str(data))).strip() == "train"
    assert not data.is_symlink()


def test_a_path_that_another_run_uses_is_not_taken_away(
    agent: Agent, code: Path, data: Path, tmp_path: Path
) -> None:
    place = tmp_path / "place"
    trees = (TreeLink(str(data), str(place), copied=True), copied(code))
    jobs.start(HOST, agent, Job("first", ("sleep", "60"), sys.executable, trees=trees))
    with pytest.raises(jobs.PathTaken, match=f"The run first has its data at {place} until it ends") as taken:
        run(agent, "true", *trees, run_id="second")
    assert (taken.value.run_id, taken.value.exit_code, taken.value.worth_repeating) == ("first", 15, True)
    assert (taken.value.next_command or "").startswith("orch logs -f first ")
    jobs.cancel(HOST, agent, "first", 0)
    run(agent, "true", *trees, run_id="second")


def test_who_uses_a_path_is_named_as_the_user_named_it(
    agent: Agent, code: Path, data: Path, tmp_path: Path
) -> None:
    """Not by the name of a job that orch starts for it."""
    trees = (TreeLink(str(data), str(tmp_path / "place"), copied=True), copied(code))
    part = Job("first.parity-b7cdbf", ("sleep", "60"), sys.executable, trees=trees, serves="first")
    jobs.start(HOST, agent, part)
    with pytest.raises(jobs.PathTaken, match="The run first has") as taken:
        run(agent, "true", *trees, run_id="second")
    assert taken.value.run_id == "first"
    jobs.cancel(HOST, agent, part.run_id, 0)


# ---------------------------------------------------------------- what the run left


def test_outputs_are_what_was_made_or_changed(agent: Agent, code: Path, data: Path) -> None:
    (code / "touched").write_text("same")
    (code / "rewritten").write_text("same")
    (code / "edited").write_text("old!")
    (code / "secretly").write_text("old!")
    text = """
    mkdir -p out/deep out/void __pycache__ ; echo model > out/deep/m.keras; ln -s m.keras out/deep/latest
    touch touched; printf same > rewritten; printf new! > edited; chmod 700 run.sh
    touch -r secretly /tmp/ref.$$; printf new! > secretly; touch -r /tmp/ref.$$ secretly; rm /tmp/ref.$$
    echo x > __pycache__/a.pyc; mkfifo pipe; echo cache > data/train/cache; ln -sf elsewhere dangling; rm link
    """
    run(agent, text, copied(code), shared(data))
    found = {entry.path: entry for entry in jobs.outputs(HOST, agent, "r")}
    assert set(found) == {
        "out", "out/deep", "out/void", "out/deep/m.keras", "out/deep/latest",
        "edited", "secretly", "run.sh", "dangling", "pipe",
        "touched", "rewritten",  # the same bytes, written by this run: its results all the same
    }  # fmt: skip
    digest = hashlib.sha256(b"model\n").hexdigest()
    assert found["out/deep/m.keras"] == Entry("out/deep/m.keras", "file", 6, 0o644, digest)
    assert found["out/deep/latest"] == Entry("out/deep/latest", "link", target="m.keras")
    assert found["out/void"].kind == "dir"
    assert found["dangling"].target == "elsewhere"
    assert found["run.sh"].mode == 0o700
    assert found["pipe"].kind == "special"


def test_globs_choose_among_outputs(agent: Agent, code: Path, data: Path) -> None:
    text = "mkdir -p out/a; for f in out/a/x.keras out/log.txt y.keras data/new.keras; do echo $f > $f; done"
    run(agent, text, copied(code), shared(data), outputs=("*.keras",))
    assert paths(agent) == {"out/a/x.keras", "y.keras", "data/new.keras"}


@pytest.mark.parametrize(
    ("glob", "path", "matches"),
    [
        ("*.keras", "a/b/m.keras", True),
        ("out/*.txt", "out/a.txt", True),
        ("out/*.txt", "out/deep/a.txt", False),
        ("out/**/a.txt", "out/a.txt", True),
        ("out/**/a.txt", "out/x/y/a.txt", True),
        ("out", "out/x/y/a.txt", True),
        ("./out/", "out/x", True),
        ("out", "output/x", False),
        ("m[0-9].h5", "m7.h5", True),
        ("m[!0-9].h5", "m7.h5", False),
        ("a?c", "a/c", False),
        ("a.c", "abc", False),
        ("**", "any/thing", True),
        (".", "any/thing", True),
    ],
)
def test_what_a_glob_matches(glob: str, path: str, matches: bool) -> None:
    assert matcher([glob])(path) is matches


def test_without_trees_only_globs_find_outputs(agent: Agent, tmp_path: Path) -> None:
    place = tmp_path / "project"
    place.mkdir()
    (place / "old.txt").write_text("old")
    job = Job(
        "r", ("sh", "-c", "sleep 0.05; echo new > new.txt; echo no > other"), sys.executable, cwd=str(place)
    )
    jobs.start(HOST, agent, job, outputs=("*.txt",))
    jobs.follow(HOST, agent, "r", 0, lambda _: None)
    assert paths(agent) == {"new.txt"}


def test_outputs_of_a_lost_run_can_still_be_had(agent: Agent, code: Path) -> None:
    run(agent, "echo saved > checkpoint", copied(code))
    folder = Path(jobs.run_dir(agent, "r"))
    for name in ("exit.json", "outputs.json"):
        (folder / name).unlink()
    assert jobs.state(HOST, agent, "r").state == "lost"
    assert paths(agent) == {"checkpoint"}
