"""Files appear whole or not at all, and a writer that was killed leaves nothing for long."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from orchestrator.hosts.atomic import atomic_file, atomic_write, new_folder, remove_abandoned, scratch_folder


def killed_while_writing(place: Path) -> None:
    child = os.fork()
    if child == 0:
        with atomic_file(place) as file:
            file.write(b"half")
            file.flush()
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)


def test_what_a_killed_writer_left_goes_with_the_next_write(tmp_path: Path) -> None:
    place = tmp_path / "record.json"
    atomic_write(place, b"first")
    killed_while_writing(place)
    assert place.read_bytes() == b"first"
    assert len(list(tmp_path.iterdir())) == 2, "the unfinished file is there"
    atomic_write(place, b"second")
    assert [path.name for path in tmp_path.iterdir()] == ["record.json"]
    assert place.read_bytes() == b"second"


def test_what_killed_writers_left_in_a_folder_is_removed_and_nothing_else(tmp_path: Path) -> None:
    killed_while_writing(tmp_path / "identity")
    killed_while_writing(tmp_path / ".gitignore")
    (tmp_path / "model.part").write_bytes(b"of the user")
    with atomic_file(tmp_path / "record.json") as slow:
        slow.write(b"slow")
        remove_abandoned(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"model.part", "record.json"}


def test_a_writer_that_lives_is_left_alone(tmp_path: Path) -> None:
    place = tmp_path / "record.json"
    with atomic_file(place) as slow:
        slow.write(b"slow")
        atomic_write(place, b"quick")
        assert place.read_bytes() == b"quick"
    assert place.read_bytes() == b"slow"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_failed_write_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    place = tmp_path / "record.json"
    atomic_write(place, b"first", 0o600)
    with pytest.raises(RuntimeError), atomic_file(place) as file:
        file.write(b"half")
        raise RuntimeError
    assert place.read_bytes() == b"first"
    assert place.stat().st_mode & 0o777 == 0o600
    assert len(list(tmp_path.iterdir())) == 1


def test_a_scratch_folder_of_a_killed_program_goes_with_the_next_one(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        with scratch_folder(tmp_path, "names") as folder:
            (folder / "probe").touch()
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert len(list(tmp_path.iterdir())) == 1, "it is there"
    with scratch_folder(tmp_path, "names") as folder:
        assert list(tmp_path.iterdir()) == [folder]
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_download_left_a_day_ago_is_removed(tmp_path: Path) -> None:
    old, young = new_folder(tmp_path), new_folder(tmp_path)
    (old / "some.whl").write_bytes(b"half")
    os.utime(old, (0, 0))
    fresh = new_folder(tmp_path)
    assert set(tmp_path.iterdir()) == {young, fresh}


def test_content_then_name_are_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, flushed = tmp_path / "run.json", list[tuple[str, bool]]()
    flush = os.fsync

    def noted(handle: int) -> None:
        flushed.append((str(Path(f"/proc/self/fd/{handle}").readlink()), place.exists()))
        flush(handle)

    monkeypatch.setattr(os, "fsync", noted)
    atomic_write(place, b"{}")
    (part, there_before), (folder, there_after) = flushed
    assert Path(part).parent == tmp_path and not there_before, "the content before it has its name"
    assert Path(folder) == tmp_path and there_after, "then the folder, which holds the name"
