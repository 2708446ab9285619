"""Data that were sent are what every run reads: no run writes them; what was altered by force is named."""

from __future__ import annotations

import dataclasses
import json
import mmap
import os
import sys
from pathlib import Path

import pytest

from orchestrator import jobs, sync
from orchestrator.errors import UsageError
from orchestrator.hosts.here import HereHost
from orchestrator.model import Agent, Job, RunState, TreeLink
from orchestrator.runtime.transfer import tree
from tests.unit.far_side import agent_at

pytestmark = pytest.mark.processes

HOST = HereHost()


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return agent_at(tmp_path / "far")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    top = tmp_path / "data"
    (top / "train").mkdir(parents=True)
    (top / "train/a").write_text("aaaa")
    (top / "b").write_text("bbbb")
    for path in (top / "train/a", top / "b"):
        os.utime(path, (1_700_000_000,) * 2)
    return top


def sent(agent: Agent, data: Path, target: str = "data") -> TreeLink:
    scan = sync.scan(data, data=True)
    sync.push(HOST, agent, scan, "data-0")
    return TreeLink(sync.tree_path(agent, "data-0"), target, digest=scan.manifest.digest)


def run(agent: Agent, script: str, link: TreeLink, run_id: str = "r") -> RunState:
    """Run `script` in Python to its end."""
    job = Job(run_id, ("python", "-c", script), sys.executable, trees=(link,))
    jobs.start(HOST, agent, job)
    jobs.follow(HOST, agent, run_id, 0, lambda _: None)
    return jobs.state(HOST, agent, run_id)


def log(agent: Agent, run_id: str = "r") -> str:
    return Path(jobs.run_dir(agent, run_id), "output.log").read_text()


def tree_of(agent: Agent) -> Path:
    return Path(sync.tree_path(agent, "data-0"))


@pytest.mark.parametrize("mode", ["w", "a", "r+"])
def test_a_job_cannot_write_into_its_data(agent: Agent, data: Path, mode: str) -> None:
    """Not even one that runs as root, as on a local machine."""
    ended = run(agent, f"open('data/train/a', {mode!r}).write('x')", sent(agent, data))
    assert ended.exit is not None and ended.exit.reason == "failed"
    assert "Permission denied" in log(agent)
    assert "data/train/a" in ended.exit.detail and "read-only" in ended.exit.detail
    assert (tree_of(agent) / "train/a").read_text() == "aaaa"
    assert jobs.left(HOST, agent, "r").altered == ()


def test_a_job_may_put_files_beside_its_data_and_replace_its_own_view(agent: Agent, data: Path) -> None:
    script = (
        "import os; open('data/cache', 'w').write('c'); os.remove('data/b'); open('data/b', 'w').write('m')"
    )
    ended = run(agent, script, sent(agent, data))
    assert ended.exit is not None and ended.exit.reason == "completed", log(agent)
    assert sorted(path.name for path in tree_of(agent).iterdir()) == ["b", "train"]
    assert (tree_of(agent) / "b").read_text() == "bbbb"
    assert jobs.left(HOST, agent, "r").altered == ("b",)


@pytest.mark.parametrize("target", ["data", "absolute"])
def test_data_that_a_job_replaced_by_renaming_are_named(
    agent: Agent, data: Path, tmp_path: Path, target: str
) -> None:
    place = str(tmp_path / "place") if target == "absolute" else target
    script = f"import os; p = {place!r} + '/train'; open(p + '/n', 'w').write('evil')\n"
    script += "os.replace(p + '/n', p + '/a')\nprint(open(p + '/a').read())"
    run(agent, script, sent(agent, data, place))
    assert log(agent) == "evil\n"
    assert jobs.left(HOST, agent, "r").altered == ("train/a",)


@pytest.mark.parametrize("by", ["a folder that was there before", "a link"])
@pytest.mark.parametrize("target", ["data", "absolute"])
def test_a_folder_in_place_of_the_data_is_named(
    agent: Agent, data: Path, tmp_path: Path, target: str, by: str
) -> None:
    """Nothing in it is newer than the run."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "a").write_text("evil")
    place = str(tmp_path / "place") if target == "absolute" else target
    script = f"import os; p, other = {place!r} + '/train', {str(other)!r}; os.rename(p, 'aside')\n"
    script += f"os.{'symlink' if by == 'a link' else 'rename'}(other, p); print(open(p + '/a').read())"
    run(agent, script, sent(agent, data, place))
    assert log(agent) == "evil\n"
    assert jobs.left(HOST, agent, "r").altered == ("train/a",)


def test_a_file_of_a_tree_that_lies_over_the_data_is_no_change(
    agent: Agent, data: Path, tmp_path: Path
) -> None:
    (tmp_path / "over").mkdir()
    (tmp_path / "over/b").write_text("over")
    scan = sync.scan(tmp_path / "over", data=True)
    sync.push(HOST, agent, scan, "data-1")
    over = TreeLink(sync.tree_path(agent, "data-1"), "data/./", digest=scan.manifest.digest)
    job = Job(
        "r", ("python", "-c", "print(open('data/b').read())"), sys.executable, trees=(sent(agent, data), over)
    )
    jobs.start(HOST, agent, job)
    jobs.follow(HOST, agent, "r", 0, lambda _: None)
    assert log(agent) == "over\n"
    assert jobs.left(HOST, agent, "r").altered == ()


LINUX = pytest.mark.skipif(sys.platform != "linux", reason="mounts of one's own are Linux's")


@LINUX
def test_a_mount_over_the_data_in_a_namespace_of_the_jobs_own_is_told(
    agent: Agent, data: Path, tmp_path: Path
) -> None:
    """It is gone at the run's end, and nobody else ever saw it."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other/b").write_text("evil")
    inside = f"mount --bind {tmp_path}/other data && cat data/b && umount data && cat data/b"
    script = f"import subprocess; subprocess.run(['unshare', '-Urm', 'sh', '-c', {inside!r}], check=True)"
    ended = run(agent, script, sent(agent, data))
    assert ended.exit is not None and ended.exit.reason == "completed", log(agent)
    assert log(agent) == "evilbbbb"
    left = jobs.left(HOST, agent, "r")
    assert left.watched
    assert {each.program for each in left.mounts} >= {"mount", "umount"}
    assert any(each.target.endswith("data") for each in left.mounts)


@LINUX
def test_a_run_without_mounts_tells_of_none(agent: Agent, data: Path) -> None:
    script = "import os, subprocess; subprocess.run(['true']); print(os.getppid() > 0)"
    run(agent, script, sent(agent, data))
    left = jobs.left(HOST, agent, "r")
    assert (left.mounts, left.watched) == ((), True)


@LINUX
def test_a_run_that_cannot_be_watched_says_so(data: Path, tmp_path: Path) -> None:
    agent = agent_at(tmp_path / "far", "from orch_runtime.agent import mounts; mounts._SECCOMP.clear()")
    run(agent, "print(open('data/b').read())", sent(agent, data))
    assert log(agent) == "bbbb\n"
    left = jobs.left(HOST, agent, "r")
    assert (left.mounts, left.watched) == ((), False)


def test_what_a_run_altered_is_told_though_its_supervisor_was_killed(agent: Agent, data: Path) -> None:
    script = "import os, signal; p = 'data/train/a'; os.chmod(p, 0o644); open(p, 'r+').write('XXXX')\n"
    script += "os.kill(os.getppid(), signal.SIGKILL)"
    ended = run(agent, script, sent(agent, data))
    assert ended.state == "lost"
    assert jobs.left(HOST, agent, "r").altered == ("train/a",)


def test_what_a_job_altered_by_force_is_named_and_sent_again(agent: Agent, data: Path) -> None:
    """It changed the mode, wrote the same number of bytes, and set the time back."""
    script = (
        "import os; p = 'data/train/a'; s = os.stat(p); os.chmod(p, 0o644); open(p, 'r+').write('XXXX');"
        "os.utime(p, ns=(s.st_atime_ns, s.st_mtime_ns)); os.chmod(p, 0o444)"
    )
    run(agent, script, sent(agent, data))
    assert jobs.left(HOST, agent, "r").altered == ("train/a",)
    link = sent(agent, data)
    run(agent, "print(open('data/train/a').read())", link, "s")
    assert log(agent, "s") == "aaaa\n"
    assert jobs.left(HOST, agent, "s").altered == ()


def test_a_write_through_a_mapping_that_was_open_before_the_run_is_named(
    agent: Agent, data: Path, tmp_path: Path
) -> None:
    """The page is dirty when the run is laid out: the kernel sets no time when it is written again."""
    link, go = sent(agent, data), tmp_path / "go"
    place = tree_of(agent) / "b"
    place.chmod(0o644)
    with open(place, "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[0:1] = b"b"
        os.utime(place, (1_700_000_000,) * 2)
        place.chmod(0o444)
        script = f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(.02)\n"
        job = Job(
            "r", ("python", "-c", script + "print(open('data/b').read())"), sys.executable, trees=(link,)
        )
        jobs.start(HOST, agent, job)
        mapped[0:1] = b"X"
        go.touch()
        jobs.follow(HOST, agent, "r", 0, lambda _: None)
    assert log(agent) == "Xbbb\n"
    assert jobs.left(HOST, agent, "r").altered == ("b",)


def test_what_was_altered_since_it_was_sent_is_not_given_to_a_run(agent: Agent, data: Path) -> None:
    link = sent(agent, data)
    place = tree_of(agent) / "b"
    place.chmod(0o644)
    place.write_text("XXXX")
    os.utime(place, (1_700_000_000,) * 2)
    with pytest.raises(UsageError, match="b was changed on the machine"):
        run(agent, "pass", link)
    with pytest.raises(UsageError, match="not the one that was sent"):
        run(agent, "pass", dataclasses.replace(link, digest="0" * 64), "other")


@pytest.mark.parametrize("target", ["data", "absolute"])
def test_a_run_keeps_its_data_while_others_are_sent(
    agent: Agent, data: Path, tmp_path: Path, target: str
) -> None:
    place = str(tmp_path / "place") if target == "absolute" else target
    go = tmp_path / "go"
    script = f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(.02)\n"
    script += f"print(open({place!r} + '/b').read())"
    job = Job("r", ("python", "-c", script), sys.executable, trees=(sent(agent, data, place),))
    jobs.start(HOST, agent, job)
    (data / "b").write_text("newer")
    sent(agent, data)
    go.touch()
    jobs.follow(HOST, agent, "r", 0, lambda _: None)
    assert log(agent) == "bbbb\n"
    assert jobs.left(HOST, agent, "r").altered == ()


def test_data_that_are_one_file_are_read_only_too(agent: Agent, data: Path) -> None:
    link = sent(agent, data / "b", "b")
    ended = run(agent, "print(open('b').read()); open('b', 'w')", link)
    assert ended.exit is not None and ended.exit.reason == "failed"
    assert log(agent).startswith("bbbb\n")
    assert jobs.left(HOST, agent, "r").altered == ()


def test_data_that_are_one_file_and_were_replaced_are_named(agent: Agent, data: Path) -> None:
    run(agent, "import os; os.remove('c'); open('c', 'w').write('evil')", sent(agent, data / "b", "c"))
    assert jobs.left(HOST, agent, "r").altered == ("b",)


def test_linked_files_are_not_read_again(agent: Agent, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To link a file moves its change time; the next sync and the next run know it all the same."""
    run(agent, "pass", sent(agent, data))
    read: list[bytes] = []
    real = tree.content
    root = str(tree_of(agent))
    from orchestrator.runtime.transfer import record

    monkeypatch.setattr(tree, "content", lambda path: (read.append(path), real(path))[1])
    record.verify(root, record.recall(root).digest)
    assert read == []
    assert sync.push(HOST, agent, sync.scan(data, data=True), "data-0").sent_files == 0


@pytest.mark.parametrize("harm", ["", "written", "replaced"])
def test_queued_runs_share_their_data_and_read_them_again_only_if_something_wrote_them(
    agent: Agent, data: Path, tmp_path: Path, harm: str
) -> None:
    """Each run that is queued is one more link to the files, which changes their ctime."""
    link = sent(agent, data)
    job = Job("", ("python", "-c", "print(open('data/b').read())"), sys.executable, trees=(link,))
    gate = f"import os, time\nwhile not os.path.exists({str(tmp_path / 'go')!r}): time.sleep(0.02)"
    held = dataclasses.replace(job, run_id="a", argv=("python", "-c", gate))
    for each in (held, *(dataclasses.replace(job, run_id=name) for name in "bc")):
        jobs.start(HOST, agent, each, queued=True)
    place = tree_of(agent) / "b"
    if harm == "written":
        place.chmod(0o644)
        place.write_text("evil")
        os.utime(place, (1_700_000_000,) * 2)
    if harm == "replaced":
        (tmp_path / "other").write_text("next")
        (tmp_path / "other").replace(place)
    (tmp_path / "go").touch()
    jobs.follow(HOST, agent, "c", 0, lambda _: None)
    assert log(agent, "c") == ("evil\n" if harm == "written" else "bbbb\n")
    assert jobs.left(HOST, agent, "c").altered == (("b",) if harm == "written" else ())
    shared = json.loads(Path(jobs.run_dir(agent, "b"), "shared.json").read_text())["trees"][0]["files"]
    for path, (stamp, _, tells) in shared.items():
        same = tuple(stamp) == tree.stamp_of((tree_of(agent) / path).lstat())
        assert (same and tells) == (not harm or path != "b"), path
