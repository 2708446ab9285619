"""The runtime's side without TensorFlow: windows, files in and out of the page cache, counted reads,
scratch."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.runtime.stalls.files import Known, chill, copied, read_rate, warm
from orchestrator.runtime.stalls.shim import FOLDER, build
from orchestrator.runtime.stalls.windows import LEAD, Mode, connections, window
from orchestrator.stalls.file_reads import reads_of
from orchestrator.stalls.scratch_folder import Scratch, copy_project

ROOT = Path(__file__).resolve().parents[3]


def driven(mode: Mode, steps: int, look: Callable[[Any, int], None] | None = None) -> tuple[Any, list[int]]:
    """Train on what a window feeds: its line, and the batches that were trained on."""
    seen: list[int] = []
    feed = window(mode, steps, lambda: None, look)
    try:
        source = next(feed)
        while True:
            batch = next(source, None)
            if batch is not None:
                seen.append(batch)
            source = feed.send(batch is not None)
    except StopIteration as ended:
        return ended.value, seen


def test_a_window_times_its_steps_and_not_its_lead() -> None:
    line, seen = driven(Mode("warm", lambda: iter(range(100))), 10)
    assert (line["mode"], line["steps"], line["opened"]) == ("warm", 10, 1)
    assert seen == list(range(LEAD + 10))
    assert line["wall"] > 0 and line["device"] >= 0


def test_input_that_ends_is_opened_again() -> None:
    looked: list[int] = []
    line, seen = driven(Mode("warm", lambda: iter(range(5))), 12, lambda _, given: looked.append(given))
    assert line["steps"] == 12 and line["opened"] == 4
    assert len(seen) == LEAD + 12 + 3  # of each pass that begins meanwhile, the first step is not counted
    assert looked == [seen[-1] + 1]


def test_input_without_batches_ends_the_window() -> None:
    line, seen = driven(Mode("warm", lambda: iter(())), 5)
    assert line["steps"] == 0 and seen == []


def test_input_of_one_pass_gives_what_it_has() -> None:
    once = iter(range(LEAD + 4))
    line, _ = driven(Mode("warm", lambda: once), 50)
    assert line["steps"] == 4


def test_pulling_trains_on_nothing() -> None:
    line, seen = driven_pull()
    assert seen == [] and line["steps"] == 7


def driven_pull() -> tuple[Any, list[int]]:
    feed = window(Mode("pull", lambda: iter(range(50)), pull=True), 7, lambda: None)
    with pytest.raises(StopIteration) as ended:
        next(feed)
    return ended.value.value, []


def test_before_and_after_are_called_around_it() -> None:
    heard: list[str] = []

    def open_() -> Iterator[int]:
        heard.append("open")
        return iter(range(50))

    driven(Mode("cold", open_, lambda: heard.append("before"), lambda: heard.append("after")), 3)
    assert heard == ["before", "open", "after"]


def test_own_connections_are_counted_and_no_others() -> None:
    before = connections()
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        there, _ = server.accept()
        with there:
            assert connections() == before + 2
    assert connections() == before


# ---------------------------------------------------------------- files


def test_files_are_known_by_name_and_by_opening(tmp_path: Path) -> None:
    for each in ("named", "opened", "ours", "code.py", "weights.pth"):
        (tmp_path / each).write_bytes(b"x" * 10)
    known = Known([str(tmp_path / "ours")])
    known.named([str(tmp_path / each) for each in ("named", "no such file", "code.py", "weights.pth")])
    with open(tmp_path / "opened", "rb"):
        known.look()
    found = dict(known.list())
    assert {str(tmp_path / each) for each in ("named", "opened", "weights.pth")} <= set(found)
    assert found[str(tmp_path / "named")] == 10 and str(tmp_path / "code.py") not in found


def test_files_go_out_of_the_cache_and_come_back_whole(tmp_path: Path) -> None:
    path = tmp_path / "data"
    content = os.urandom(1 << 20)
    path.write_bytes(content)
    assert chill([str(path), str(tmp_path / "absent")]) == 1
    warm([(str(path), len(content)), (str(tmp_path / "absent"), 5)])
    assert path.read_bytes() == content
    assert read_rate([str(path)]) > 0 and read_rate([]) == 0


def test_staging_copies_all_or_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1" * 100)
    (tmp_path / "b").write_bytes(b"2" * 100)
    listed = [(str(tmp_path / "a"), 100), (str(tmp_path / "b"), 100)]
    assert copied(listed, str(tmp_path / "there"), 150) == {}
    there = copied(listed, str(tmp_path / "there"), 200)
    assert {Path(copy).read_bytes() for copy in there.values()} == {b"1" * 100, b"2" * 100}


def test_reads_of_native_code_are_counted(tmp_path: Path) -> None:
    library = tmp_path / "reads.so"
    why = build(str(library))
    if why == "there is no C compiler here":
        pytest.skip(why)
    assert why is None
    (tmp_path / "data").write_bytes(b"x" * 5000)
    program = (
        "import os, sys\n"
        "for _ in range(3):\n"
        "    fd = os.open(sys.argv[1], os.O_RDONLY)\n"
        "    os.pread(fd, 1000, 0); os.read(fd, 100); os.close(fd)\n"
        "fd = os.open(sys.argv[1] + '.new', os.O_WRONLY | os.O_CREAT); os.write(fd, b'1')\n"
    )
    environment = {**os.environ, FOLDER: str(tmp_path), "LD_PRELOAD": str(library)}
    argv = [sys.executable, "-c", program, str(tmp_path / "data")]
    subprocess.run(argv, env=environment, check=True, timeout=120)
    found = {each.path: (each.opens, each.reads, each.bytes) for each in reads_of(tmp_path)}
    assert found[str(tmp_path / "data")] == (3, 6, 3300)
    assert str(tmp_path / "data.new") not in found


# ---------------------------------------------------------------- scratch


def test_a_scratch_folder_copies_code_and_links_data(tmp_path: Path) -> None:
    project = tmp_path / "project"
    for name, text in {
        "train.py": "x = 1",
        "data/a.bin": "abc",
        "data/deep/b.bin": "d",
        ".git/x": "",
    }.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    scratch = copy_project(project, tmp_path / "scratch" / "project")
    assert not (scratch.copy / "train.py").is_symlink() and (scratch.copy / "train.py").read_text() == "x = 1"
    assert (scratch.copy / "data" / "deep" / "b.bin").readlink() == project / "data" / "deep" / "b.bin"
    assert not (scratch.copy / ".git").exists()
    (scratch.copy / "data" / "new").write_text("")
    assert not (project / "data" / "new").exists()
    assert scratch.argv(["python", str(project / "train.py"), "--data", "data"])[1] == str(
        scratch.copy / "train.py"
    )
    assert scratch.back(scratch.copy / "train.py") == project / "train.py"
    assert scratch.plan("free", "refused")["guard"]["kept"] == [str(project)]


def test_what_an_earlier_run_left_may_be_written_again_and_stays_as_it_is(tmp_path: Path) -> None:
    """In a process of its own: an audit hook cannot be taken off."""
    project = tmp_path / "project"
    (project / "data").mkdir(parents=True)
    for name in ("log.bin", "gone.bin", "other.bin", "w.weights.h5", "data/a.bin"):
        (project / name).write_text("mine")
    scratch = copy_project(project, tmp_path / "scratch" / "project")
    assert not (scratch.copy / "w.weights.h5").is_symlink() and (scratch.copy / "log.bin").is_symlink()
    program = (
        "import os, sys\n"
        "from orchestrator.runtime.guard import Guard\n"
        "copy, project, refused = sys.argv[1:]\n"
        "Guard([project], [copy], refused).install()\n"
        "os.chdir(copy)\n"
        "open('log.bin', 'a').write(' and more')\n"
        "os.remove('gone.bin')\n"
        "open('new.bin', 'w').write('new')\n"
        "os.replace('new.bin', 'other.bin')\n"
        "open('data/a.bin', 'w').write('other')\n"
        "try:\n"
        "    open(project + '/log.bin', 'a')\n"
        "except PermissionError:\n"
        "    print(open('log.bin').read(), os.path.exists('gone.bin'), open('other.bin').read())\n"
    )
    there = [str(scratch.copy), str(project), str(tmp_path / "refused")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path / "none")}
    done = subprocess.run(
        [sys.executable, "-c", program, *there], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "mine and more False new\n", done.stderr
    assert (tmp_path / "refused").read_text() == f"{project / 'log.bin'}\n"
    assert {path.read_text() for path in project.rglob("*") if path.is_file()} == {"mine"}


def test_in_place_nothing_is_imposed(tmp_path: Path) -> None:
    assert Scratch(tmp_path, tmp_path).plan("free", "refused") == {}
