"""One suite for every kind of store."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.errors import LocalError, StorageFault
from orchestrator.storage import Changed, Missing, StorageError, Store, Stored
from tests.conformance.stores import KINDS, new_store

KEYS = [
    "a",
    "folder/name with spaces & %2F",
    "ü/日本語/e\u0301",
    "UPPER/Upper/upper",
    "a+b=c,d~e@f(g)'h!i*j;k:l?m#n$o&p",
    "back\\slash",
    "dots/..a/.b/c..",
    "x" * 200 + "/" + "y" * 200,
]
HOSTILE = [
    "",
    "/absolute",
    "a//b",
    "trailing/",
    "..",
    "../up",
    "a/../b",
    "a/./b",
    ".",
    "nul\0",
    "line\nbreak",
    "escape\x1b[2J",
    "c1\x9b",
    "del\x7f",
    "lone\ud800",
    "x" * 1025,
    ".orch-store/locks/00",
]


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return new_store(request, tmp_path)


def keys(store: Store, prefix: str = "") -> list[str]:
    return [stored.key for stored in store.list(prefix)]


@pytest.mark.parametrize("content", [b"", b"text", b"line\r\nline\n\0--x--", os.urandom(3 << 20)], ids=len)
def test_what_is_put_comes_back(store: Store, tmp_path: Path, content: bytes) -> None:
    stored = store.put("a/b", content)
    assert (stored.key, stored.size) == ("a/b", len(content))
    assert stored.version
    assert store.get("a/b") == content
    assert store.fetch("a/b", tmp_path / "new/copy") == stored
    assert (tmp_path / "new/copy").read_bytes() == content
    assert store.head("a/b") == stored
    (listed,) = store.list()
    assert (listed.key, listed.size, listed.version) == (stored.key, stored.size, stored.version)


def test_a_file_is_put_as_it_is(store: Store, tmp_path: Path) -> None:
    content = os.urandom(1 << 20)
    (tmp_path / "source").write_bytes(content)
    assert store.put("file", tmp_path / "source").size == len(content)
    assert store.get("file") == content
    with pytest.raises(LocalError):
        store.put("absent", tmp_path / "none")
    assert store.head("absent") is None


def test_the_checksum_is_of_the_content(store: Store) -> None:
    stored = store.put("a", b"123456789")
    kind, _, value = stored.checksum.partition(":")
    known = {
        "": "",
        "crc32c": "e3069283",
        "md5": hashlib.md5(b"123456789").hexdigest(),
        "sha256": hashlib.sha256(b"123456789").hexdigest(),
    }
    assert value == known[kind]


@pytest.mark.parametrize("key", KEYS, ids=lambda key: ascii(key)[:20])
def test_a_key_is_kept_as_it_is(store: Store, tmp_path: Path, key: str) -> None:
    store.put(key, b"here")
    assert store.get(key) == b"here"
    assert store.fetch(key, tmp_path / "copy").key == key
    assert keys(store) == [key]
    assert keys(store, key[:3]) == [key]
    store.delete(key)
    assert keys(store) == []


@pytest.mark.parametrize("key", HOSTILE, ids=lambda key: ascii(key)[:20])
def test_a_hostile_key_is_refused_everywhere(store: Store, tmp_path: Path, key: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: store.put(key, b"x"),
        lambda: store.put_if(key, b"x", None),
        lambda: store.get(key),
        lambda: store.fetch(key, tmp_path / "copy"),
        lambda: store.head(key),
        lambda: store.delete(key),
    ]
    for call in calls:
        with pytest.raises(StorageError) as refused:
            call()
        assert refused.value.fault is StorageFault.KEY
        assert refused.value.message.isprintable()
        assert len(refused.value.message) < 300
    assert keys(store) == []
    assert not (tmp_path / "copy").exists()


def test_upper_and_lower_case_are_two_objects(store: Store) -> None:
    store.put("Data/A", b"1")
    store.put("data/a", b"2")
    store.put("data/A", b"3")
    assert keys(store) == ["Data/A", "data/A", "data/a"]
    assert [store.get(key) for key in keys(store)] == [b"1", b"3", b"2"]


def test_an_absent_object_is_missing(store: Store, tmp_path: Path) -> None:
    store.put("folder/file", b"x")
    for key in ("absent", "folder", "folder/file/below"):
        assert store.head(key) is None
        with pytest.raises(Missing):
            store.get(key)
        with pytest.raises(Missing):
            store.fetch(key, tmp_path / "copy")
        store.delete(key)
    assert not (tmp_path / "copy").exists()
    assert store.get("folder/file") == b"x"


def test_every_write_has_its_own_version(store: Store) -> None:
    versions = [store.put("a", text).version for text in (b"one", b"two", b"three")]
    assert len(set(versions)) == 3
    head = store.head("a")
    assert head is not None
    assert head.version == versions[-1]


def test_a_version_is_what_was_read_or_changed_is_raised(store: Store, tmp_path: Path) -> None:
    first = store.put("a", b"one")
    assert store.get("a", first.version) == b"one"
    assert store.fetch("a", tmp_path / "copy", first.version).version == first.version
    store.put("a", b"two")
    with pytest.raises(Changed) as changed:
        store.get("a", first.version)
    assert changed.value.expected == first.version
    with pytest.raises(Changed):
        store.fetch("a", tmp_path / "second", first.version)
    assert not (tmp_path / "second").exists()
    store.delete("a")
    with pytest.raises(Missing):
        store.get("a", first.version)


def test_a_condition_holds_or_nothing_is_written(store: Store) -> None:
    first = store.put_if("a", b"one", None)
    with pytest.raises(Changed):
        store.put_if("a", b"two", None)
    second = store.put_if("a", b"two", first.version)
    for expected in (first.version, None):
        with pytest.raises(Changed):
            store.put_if("a", b"three", expected)
    with pytest.raises(Changed):
        store.put_if("absent", b"three", second.version)
    assert store.get("a") == b"two"
    assert keys(store) == ["a"]
    assert store.head("a") == second


def test_only_an_expected_version_is_deleted(store: Store) -> None:
    first = store.put("a", b"one")
    second = store.put("a", b"two")
    with pytest.raises(Changed):
        store.delete("a", first.version)
    assert store.get("a") == b"two"
    store.delete("a", second.version)
    assert store.head("a") is None
    store.delete("a", second.version)
    store.delete("a")


def test_one_of_many_racers_wins_and_no_step_is_lost(store: Store) -> None:
    won: list[int] = []
    start = threading.Barrier(8)

    def race(number: int) -> None:
        start.wait()
        try:
            store.put_if("once", b"%d" % number, None)
            won.append(number)
        except Changed:
            pass
        for _ in range(3):
            _count_up(store, b"%d" % number)

    store.put_if("counter", b"0", None)
    threads = [threading.Thread(target=race, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert store.get("once") == b"%d" % won[0]
    assert store.get("counter").split()[0] == b"24"


def _count_up(store: Store, writer: bytes) -> None:
    while True:
        head = store.head("counter")
        assert head is not None
        try:
            count = int(store.get("counter", head.version).split()[0])
            store.put_if("counter", b"%d by %s" % (count + 1, writer), head.version)
            return
        except Changed:
            continue


def test_a_listing_is_in_the_order_of_the_bytes_of_the_keys(store: Store) -> None:
    names = ["a", "a-b", "a.b", "b/c", "b0", "Z", "ü", "\uffff", "\U00010000", "b/c-d/e", "b/d/e/f"]
    for name in names:
        store.put(name, name.encode())
    assert keys(store) == sorted(names, key=str.encode)
    assert keys(store, "b") == ["b/c", "b/c-d/e", "b/d/e/f", "b0"]
    assert keys(store, "b/") == ["b/c", "b/c-d/e", "b/d/e/f"]
    assert keys(store, "b/c") == ["b/c", "b/c-d/e"]
    assert keys(store, "b/d/e/") == ["b/d/e/f"]
    assert keys(store, "none") == []
    assert keys(store, "none/at/all/") == []


def test_a_hostile_prefix_is_refused(store: Store) -> None:
    for prefix in ("/", "../", "a//", "\0", "x" * 1025):
        with pytest.raises(StorageError):
            keys(store, prefix)


def test_a_file_that_cannot_be_written_leaves_nothing(store: Store, tmp_path: Path) -> None:
    store.put("a", b"x")
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    for into in (tmp_path / "file/below", tmp_path / "folder"):
        with pytest.raises(LocalError):
            store.fetch("a", into)
    assert list((tmp_path / "folder").iterdir()) == []
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".part")]


def test_an_object_that_changes_while_it_is_fetched_is_one_of_the_two(store: Store, tmp_path: Path) -> None:
    contents = [bytes([number]) * (1 << 20) for number in range(2)]
    store.put("a", contents[0])
    over = threading.Event()

    def write() -> None:
        number = 0
        while not over.is_set():
            number += 1
            store.put("a", contents[number % 2])

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(10):
            stored: Stored = store.fetch("a", tmp_path / "copy")
            assert (tmp_path / "copy").read_bytes() in contents
            assert stored.size == 1 << 20
    finally:
        over.set()
        writer.join()
