"""The store of files: killed at any line, hostile folders, damage; and the urls of all stores."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from orchestrator.errors import StorageFault
from orchestrator.model import store_keys
from orchestrator.storage import Corrupt, Missing, StorageError, Store, open_store
from orchestrator.storage.checksums import Checker
from orchestrator.storage.files import FileStore

HASH = "ab" * 32


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return FileStore(tmp_path / "store")


def killed_at(line: int, act: Callable[[], object]) -> bool:
    """Whether a child that does `act` was killed with SIGKILL before the so-many-th line of the store."""
    child = os.fork()
    if not child:
        left = line

        def trace(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal left
            if "/orchestrator/storage/" not in frame.f_code.co_filename:
                return None
            if event == "line":
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
            return trace

        try:
            sys.settrace(trace)
            act()
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def test_a_writer_that_is_killed_at_any_line_leaves_the_old_object_or_the_new(
    store: Store, tmp_path: Path
) -> None:
    old = store.put("folder/a", b"old")
    line, outcomes = 1, set()

    def write() -> None:
        store.put_if("folder/a", b"new content", old.version)

    while killed_at(line, write):
        for left in (tmp_path / "store/.orch-store/new").glob("*"):
            left.unlink()
        found = store.get("folder/a")
        outcomes.add(found)
        assert [stored.key for stored in store.list()] == ["folder/a"]
        if found == b"new content":
            assert store.head("folder/a") != old
            old = store.put("folder/a", b"old")
        line += 1
    assert outcomes == {b"old", b"new content"}
    assert line > 50
    assert store.get("folder/a") == b"new content"


def test_a_deleter_that_is_killed_at_any_line_can_be_repeated(store: Store) -> None:
    line = 1
    store.put("folder/below/a", b"old")
    while killed_at(line, lambda: store.delete("folder/below/a")):
        store.delete("folder/below/a")
        assert list(store.list()) == []
        store.put_if("folder/below/a", b"old", None)
        line += 1
    assert line > 10


def test_what_killed_writers_left_is_removed_after_a_day(store: Store, tmp_path: Path) -> None:
    store.put("a", b"x")
    left = tmp_path / "store/.orch-store/new"
    for name, age in (("old", 2 * 86400), ("young", 60)):
        (left / name).write_text("partial")
        at = left.stat().st_mtime - age
        os.utime(left / name, (at, at))
    store.put("b", b"x")
    assert [path.name for path in left.iterdir()] == ["young"]


def test_links_lead_nowhere(store: Store, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("secret")
    store.put("a/b", b"x")
    (tmp_path / "store/folder").symlink_to(secret)
    (tmp_path / "store/file").symlink_to(secret / "key")
    os.mkfifo(tmp_path / "store/pipe")
    assert [stored.key for stored in store.list()] == ["a/b"]
    for key in ("folder/key", "file"):
        for call in (store.get, store.head, store.delete):
            with pytest.raises(StorageError):
                call(key)
        with pytest.raises(StorageError):
            store.put(key, b"overwritten")
    with pytest.raises(Missing):
        store.get("pipe")
    assert (secret / "key").read_text() == "secret"


def test_a_name_that_no_key_has_is_not_passed_over(store: Store, tmp_path: Path) -> None:
    store.put("a", b"x")
    (tmp_path / "store/line\nbreak").write_text("x")
    with pytest.raises(StorageError) as refused:
        list(store.list())
    assert r"line\nbreak" in refused.value.message


def test_damage_at_rest_is_found(store: Store, tmp_path: Path) -> None:
    stored = store.put("a", b"precious content")
    if not stored.checksum or not (store.head("a") or stored).checksum:
        pytest.skip("this file system keeps no attributes")
    (tmp_path / "store/a").write_bytes(b"precious Content")
    with pytest.raises(Corrupt):
        store.get("a")
    with pytest.raises(Corrupt):
        store.fetch("a", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_file_is_no_folder_and_a_long_name_is_named(store: Store) -> None:
    store.put("a", b"x")
    store.put("b/c", b"x")
    for key in ("a/b", "b", "x" * 300):
        with pytest.raises(StorageError) as refused:
            store.put(key, b"y")
        assert refused.value.fault is StorageFault.KEY
    assert [stored.key for stored in store.list()] == ["a", "b/c"]


def test_versions_differ_within_one_tick_of_the_clock(store: Store) -> None:
    versions = [store.put("a", b"same").version for _ in range(200)]
    assert len(set(versions)) == 200


@pytest.mark.parametrize(
    ("url", "near"),
    [
        ("store", "file:///"),
        ("./a b", "/a%20b"),
        ("/data", "file:///data"),
        ("file://relative", "relative"),
        ("file:/data", "file:///data"),
        ("memory:x", "memory://x"),
        ("FILE:///data", "file:///data"),
        ("ftp://host/x", None),
        ("memory://", "memory://name"),
        ("memory://a/b", "memory://name"),
        ("file:///a%0Ab", None),
        ("~no-such-user/x", "no-such-user"),
        ("", None),
        ("nul\0", None),
    ],
)
def test_a_wrong_url_is_refused_with_the_nearest_form(url: str, near: str | None) -> None:
    with pytest.raises(StorageError) as refused:
        open_store(url)
    assert refused.value.fault is StorageFault.URL
    said = refused.value.message
    assert said.isprintable()
    assert ("Did you mean" in said) is (near is not None)
    assert near is None or near in said.partition("Did you mean ")[2]


def test_a_url_with_escapes_leads_to_its_folder(tmp_path: Path) -> None:
    store = open_store((tmp_path / "a ü").as_uri())
    store.put("x", b"1")
    assert (tmp_path / "a ü/x").read_bytes() == b"1"
    assert open_store(f"{store.url}/").get("x") == b"1"
    assert open_store("memory://one") is open_store("memory://one")


def test_each_thing_of_a_run_has_its_key() -> None:
    assert store_keys.blob(HASH) == f"blobs/sha256/ab/{HASH}"
    assert store_keys.manifest("r-1", 2, 3) == "runs/r-1/attempts/2/checkpoints/3/manifest.json"
    assert store_keys.outputs("r-1", 2) == "runs/r-1/attempts/2/outputs.json"
    assert store_keys.record("r-1") == "runs/r-1/run.json"
    assert store_keys.supervisor("r-1") == "runs/r-1/supervisor.json"
    assert store_keys.inputs("r-1") == "runs/r-1/inputs.json"
    assert store_keys.ledger("p", "l") == "ledgers/p/l"
    for name in ("..", "a/b", "", "x\n", "a" * 200):
        with pytest.raises(StorageError):
            store_keys.run(name)
    for call in (lambda: store_keys.blob("AB" * 32), lambda: store_keys.attempt("r", -1)):
        with pytest.raises(StorageError):
            call()


def test_a_checksum_that_cannot_be_computed_is_no_right_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Checker("").wrong() is None
    right = Checker("crc32c:e3069283")
    right.update(b"123456789")
    assert right.wrong() is None
    right.update(b"x")
    assert "crc32c" in str(right.wrong())
    monkeypatch.setitem(sys.modules, "google_crc32c", None)
    with pytest.raises(StorageError) as refused:
        Checker("crc32c:e3069283")
    assert "pip install" in str(refused.value.next_command)
