"""A run in a store: what is put there comes back as it was, and nothing else that lies there does."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.errors import StorageError, StorageFault, SyncError
from orchestrator.model.checkpoints import Snapshot, SnapshotFile
from orchestrator.model.stores import Stored
from orchestrator.runs.stored import StoredRun, key_of
from orchestrator.storage.files import FileStore
from orchestrator.storage.memory import MemoryStore

NAMES = {"saved/state.bin": b"state", "saved/100%/ü\n.bin": b"odd", "manifest.json": b"not ours"}
FILES = "runs/one/attempts/1/checkpoints/1/files"


def snapshot(folder: Path, seq: int, contents: dict[str, bytes]) -> Snapshot:
    files = []
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
        files.append(SnapshotFile(name, len(content), hashlib.sha256(content).hexdigest(), 0o644))
    return Snapshot(seq, 1.0, tuple(files))


@pytest.fixture
def run() -> StoredRun:
    return StoredRun(MemoryStore("memory://one"), "one")


def put(run: StoredRun, folder: Path, seq: int = 1, attempt: int = 1) -> Snapshot:
    made = snapshot(folder, seq, {**NAMES, "saved/seq": str((attempt, seq)).encode()})
    run.put_checkpoint(attempt, made, folder)
    return made


def keys(run: StoredRun) -> list[str]:
    return [each.key for each in run.store.list()]


def test_a_checkpoint_comes_back_as_it_was(run: StoredRun, tmp_path: Path) -> None:
    made = put(run, tmp_path / "here")
    assert run.newest_checkpoint() == (1, made)
    run.fetch_checkpoint(1, made, tmp_path / "back")
    came = {path for path in (tmp_path / "back").rglob("*") if path.is_file()}
    assert {str(path.relative_to(tmp_path / "back")) for path in came} == {*NAMES, "saved/seq"}
    assert all((tmp_path / "back" / name).read_bytes() == content for name, content in NAMES.items())
    assert not (tmp_path / "back.part").exists()


def test_the_newest_two_stay_over_all_attempts(run: StoredRun, tmp_path: Path) -> None:
    for attempt, seq in ((1, 9), (1, 10), (2, 1)):
        put(run, tmp_path / "here", seq, attempt)
    found = run.newest_checkpoint()
    assert found and (found[0], found[1].seq) == (2, 1)
    assert {key.split("/files/")[0].removesuffix("/manifest.json") for key in keys(run)} == {
        "runs/one/attempts/1/checkpoints/10",
        "runs/one/attempts/2/checkpoints/1",
    }


class Failing(MemoryStore):
    """Refuses the write number `left` and all later ones."""

    left = 1000

    def put(self, key: str, content: bytes | Path) -> Stored:
        self.left -= 1
        if self.left < 0:
            raise StorageError(StorageFault.DENIED, "No.")
        return super().put(key, content)


@pytest.mark.parametrize("left", range(5))
def test_an_upload_that_is_cut_anywhere_leaves_the_one_before_the_newest(tmp_path: Path, left: int) -> None:
    store = Failing("memory://one")
    run = StoredRun(store, "one")
    first = put(run, tmp_path / "here")
    store.left = left
    second = snapshot(tmp_path / "here", 2, {**NAMES, "saved/seq": b"2"})
    with pytest.raises(StorageError):
        run.put_checkpoint(1, second, tmp_path / "here")
    assert run.newest_checkpoint() == (1, first)
    store.left = 1000
    run.put_checkpoint(1, second, tmp_path / "here")
    assert run.newest_checkpoint() == (1, second)


def test_another_checkpoint_of_that_number_is_replaced_whole(run: StoredRun, tmp_path: Path) -> None:
    put(run, tmp_path / "a")
    other = snapshot(tmp_path / "b", 1, {"saved/other": b"other"})
    run.put_checkpoint(1, other, tmp_path / "b")
    assert run.newest_checkpoint() == (1, other)
    run.fetch_checkpoint(1, other, tmp_path / "back")
    assert (tmp_path / "back/saved/other").read_bytes() == b"other"


class Busy(MemoryStore):
    """Somebody writes another version of an object just after each of the next `left` looks at it."""

    left = 0

    def head(self, key: str) -> Stored | None:
        found = super().head(key)
        if found is not None and self.left:
            self.left -= 1
            self.put(key, self.get(key) + b" ")
        return found


@pytest.mark.parametrize("left", [1, 9])
def test_what_is_written_while_it_is_read_is_read_as_it_is_then(tmp_path: Path, left: int) -> None:
    store = Busy("memory://one")
    run = StoredRun(store, "one")
    state = {"run_id": "one", "phase": "ended", "exit": {"code": 0, "reason": "completed", "ended_at": 2.0}}
    store.put("runs/one/attempts/1/state.json", json.dumps(state).encode())
    store.put("runs/one/attempts/1/output.log", b"begun\n")
    store.put("runs/one/attempts/1/outputs.json", b'{"entries": []}')
    made = put(run, tmp_path / "here")
    for read in (
        lambda: run.fetch_log(1, tmp_path),
        lambda: run.fetch_ended(1, tmp_path),
        lambda: run.ended(1),
        lambda: run.newest_checkpoint(),
    ):
        store.left = left
        read()
        assert not store.left
    store.left = left
    assert run.newest_checkpoint() == (1, made)
    assert (tmp_path / "output.log").read_bytes().startswith(b"begun\n ")


def change_content(run: StoredRun, made: Snapshot) -> Snapshot:
    run.store.put(f"{FILES}/saved/state.bin", b"evil!")
    return made


def enlarge(run: StoredRun, made: Snapshot) -> Snapshot:
    run.store.put(f"{FILES}/saved/state.bin", b"x" * 100_000)
    return made


def remove(run: StoredRun, made: Snapshot) -> Snapshot:
    run.store.delete(f"{FILES}/saved/state.bin")
    return made


def renamed(to: str) -> Callable[[StoredRun, Snapshot], Snapshot]:
    def change(run: StoredRun, made: Snapshot) -> Snapshot:
        files = tuple(replace(file, path=to) if file.path == "saved/seq" else file for file in made.files)
        try:
            run.store.put(key_of(FILES, to), b"(1, 1)")
        except StorageError:
            pass
        return replace(made, files=files)

    return change


@pytest.mark.parametrize(
    "change",
    [change_content, enlarge, remove, renamed("../out"), renamed("/out"), renamed("a//b"), renamed("C:/out")],
    ids=["content", "larger", "absent", "above", "absolute", "empty part", "drive"],
)
def test_what_the_store_has_and_the_list_does_not_say_is_refused(
    run: StoredRun, tmp_path: Path, change: Callable[[StoredRun, Snapshot], Snapshot]
) -> None:
    made = change(run, put(run, tmp_path / "here"))
    target = tmp_path / "runs/back"
    with pytest.raises((SyncError, StorageError)):
        run.fetch_checkpoint(1, made, target)
    assert not target.exists() or not any(target.rglob("*"))
    assert not (tmp_path / "runs/out").exists() and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "said",
    [b"", b"[]", b"{}", b'{"seq": 2, "taken_at": 1, "files": []}', b'{"seq": 1, "taken_at": 1, "files": 3}'],
)
def test_a_list_that_is_none_hides_only_its_own_copy(run: StoredRun, tmp_path: Path, said: bytes) -> None:
    put(run, tmp_path / "here")
    good = put(run, tmp_path / "here", 5)
    put(run, tmp_path / "here", 7)
    run.store.put("runs/one/attempts/1/checkpoints/7/manifest.json", said)
    assert run.newest_checkpoint() == (1, good)


def test_a_store_of_files_keeps_them_too(tmp_path: Path) -> None:
    run = StoredRun(FileStore(tmp_path / "store"), "one")
    made = put(run, tmp_path / "here")
    run.fetch_checkpoint(1, made, tmp_path / "back")
    assert (tmp_path / "back/saved/state.bin").read_bytes() == b"state"


def test_keys_of_two_names_are_two() -> None:
    names = ["a%0A", "a\n", "a%250A", "ü", "%C3%BC", "a b", "a%20b"]
    assert len({key_of("f", name) for name in names}) == len(names)
