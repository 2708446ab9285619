"""A machine fetches objects: from a server that flips bytes and lets links expire."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from orchestrator import sync
from orchestrator.errors import SyncError
from orchestrator.hosts.here import HereHost
from orchestrator.model import Agent
from orchestrator.model.stores import Link, Stored
from orchestrator.runtime.fetch.checksums import Crc32c
from orchestrator.runtime.fetch.staging import PART


class Bucket(ThreadingHTTPServer):
    """Objects by path; only links of the newest `ticket` are taken, of any below `tickets`."""

    daemon_threads = False  # closing it waits until the last connection is gone

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.objects: dict[str, bytes] = {}
        self.flips: dict[str, int] = {}
        self.expire_after: dict[str, int] = {}
        self.asked: list[str] = []
        self.links: list[str] = []
        self.odd: dict[str, list[Callable[[Handler, bytes], None]]] = {}
        """Answers to the first reads of a key, instead of its bytes."""
        self.hold = threading.Event()
        self.hold.set()

    def put(self, key: str, content: bytes, algorithm: str = "md5") -> Stored:
        self.objects[key] = content
        return Stored(key, len(content), str(len(self.objects)), checksum(content, algorithm))

    def link(self, of: Stored) -> Link:
        self.links.append(of.key)
        url = f"http://127.0.0.1:{self.server_address[1]}/{of.key}?t={self.links.count(of.key)}"
        return Link(url, {}, datetime.now(UTC))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Bucket

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        key, ticket = parts.path.lstrip("/"), int(parse_qs(parts.query)["t"][0])
        self.server.asked.append(key)
        if ticket <= self.server.expire_after.get(key, 0) or key not in self.server.objects:
            self.answer(403 if key in self.server.objects else 404, b"")
            return
        first, last = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
        content = self.server.objects[key][first : last + 1]
        if self.server.odd.get(key):
            self.server.odd[key].pop(0)(self, content)
            return
        if self.server.flips.get(key, 0):
            self.server.flips[key] -= 1
            content = bytes((content[0] ^ 1,)) + content[1:]
        self.answer(206, content, f"bytes {first}-{last}/{len(self.server.objects[key])}")

    def answer(self, status: int, body: bytes, content_range: str = "", sent: int | None = None) -> None:
        """`sent`: bytes after which the connection is cut."""
        self.send_response(status)
        if content_range:
            self.send_header("Content-Range", content_range)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if sent is not None:
            self.wfile.write(body[:sent])
            self.close_connection = True
            return
        half = len(body) // 2
        self.wfile.write(body[:half])
        self.server.hold.wait(60.0)
        self.wfile.write(body[half:])

    def log_message(self, *_: object) -> None:
        pass


def checksum(content: bytes, algorithm: str) -> str:
    if algorithm == "crc32c":
        made = Crc32c()
        made.update(content)
        return f"crc32c:{made.hexdigest()}"
    return f"{algorithm}:{hashlib.new(algorithm, content).hexdigest()}" if algorithm else ""


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    with Bucket() as made:
        threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True).start()
        yield made
        made.hold.set()
        made.shutdown()


def fetched(agent: Agent, bucket: Bucket, objects: list[Stored], single: str = "") -> sync.Fetched:
    return sync.fetch(HereHost(), agent, objects, "data-0", bucket.link, single=single)


def tree(agent: Agent) -> Path:
    return Path(sync.tree_path(agent, "data-0"))


def test_objects_become_the_tree_that_the_same_files_here_are(
    bucket: Bucket, agent: Agent, tmp_path: Path
) -> None:
    contents = {"a/b/one.csv": b"1,2\n" * 5000, "a/empty": b"", "zwei ü.bin": bytes(range(256))}
    algorithms = iter(("md5", "crc32c", "sha256"))
    objects = [bucket.put(key, content, next(algorithms)) for key, content in contents.items()]
    bucket.objects |= {"zwei%20%C3%BC.bin": contents["zwei ü.bin"]}
    quoted = {"zwei ü.bin": "zwei%20%C3%BC.bin"}

    def link(of: Stored) -> Link:
        return bucket.link(Stored(quoted.get(of.key, of.key), of.size, of.version))

    done = sync.fetch(HereHost(), agent, objects, "data-0", link)
    for key, content in contents.items():
        (tmp_path / "same" / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "same" / key).write_bytes(content)
        assert (tree(agent) / key).read_bytes() == content
    assert done.manifest.digest == sync.scan(tmp_path / "same", data=True).manifest.digest
    assert (done.fetched, done.damaged) == (3, 0)


def test_what_is_there_does_not_come_again_and_what_is_not_wanted_goes(bucket: Bucket, agent: Agent) -> None:
    objects = [bucket.put(f"d/{number}", bytes([number]) * 10) for number in range(5)]
    first = fetched(agent, bucket, objects)
    asked = len(bucket.asked)
    assert fetched(agent, bucket, objects) == sync.Fetched(first.manifest, 0, 0)
    assert len(bucket.asked) == asked

    changed = Stored("d/1", 3, "new", checksum(b"new", "md5"))
    bucket.objects["d/1"] = b"new"
    done = fetched(agent, bucket, [objects[0], changed])
    assert done.fetched == 1
    assert {path.name: path.read_bytes() for path in (tree(agent) / "d").iterdir()} == {
        "0": b"\0" * 10,
        "1": b"new",
    }


def test_a_file_that_something_wrote_to_comes_again(bucket: Bucket, agent: Agent) -> None:
    objects = [bucket.put("x", b"content")]
    fetched(agent, bucket, objects)
    (tree(agent) / "x").chmod(0o644)
    (tree(agent) / "x").write_bytes(b"c0ntent")
    assert fetched(agent, bucket, objects).fetched == 1
    assert (tree(agent) / "x").read_bytes() == b"content"


@pytest.mark.parametrize("algorithm", ["md5", "crc32c", "sha256"])
def test_a_byte_that_flips_on_the_way_is_found(bucket: Bucket, agent: Agent, algorithm: str) -> None:
    objects = [bucket.put("x", b"content" * 1000, algorithm)]
    bucket.flips["x"] = 1
    assert fetched(agent, bucket, objects).damaged == 1
    assert (tree(agent) / "x").read_bytes() == b"content" * 1000


def test_an_object_that_is_always_damaged_is_named_and_never_in_its_place(
    bucket: Bucket, agent: Agent
) -> None:
    objects = [bucket.put("good", b"good"), bucket.put("bad", b"content")]
    bucket.flips["bad"] = 99
    with pytest.raises(sync.ObjectRefused) as caught:
        fetched(agent, bucket, objects)
    assert (caught.value.fault, caught.value.key) == ("corrupt", "bad")
    assert not (tree(agent) / "bad").exists()


def test_an_object_that_is_gone_is_named(bucket: Bucket, agent: Agent) -> None:
    objects = [bucket.put("there", b"x"), Stored("gone", 5, "1")]
    with pytest.raises(sync.ObjectRefused) as caught:
        fetched(agent, bucket, objects)
    assert (caught.value.fault, caught.value.key) == ("missing", "gone")


def test_links_that_expired_are_made_anew_and_a_forbidden_object_is_named(
    bucket: Bucket, agent: Agent
) -> None:
    objects = [bucket.put("late", b"x" * 100)]
    bucket.expire_after["late"] = 2
    fetched(agent, bucket, objects)
    assert bucket.links == ["late"] * 3

    bucket.expire_after["never"] = 1000
    with pytest.raises(sync.ObjectRefused) as caught:
        fetched(agent, bucket, [bucket.put("never", b"y")])
    assert caught.value.fault == "denied"


def test_links_are_made_only_as_they_are_needed(bucket: Bucket, agent: Agent) -> None:
    objects = [bucket.put(f"{number:04}", b"%d" % number) for number in range(700)]
    done = fetched(agent, bucket, objects)
    assert done.fetched == 700
    assert sorted(bucket.links) == sorted(each.key for each in objects)
    assert (tree(agent) / "0699").read_bytes() == b"699"


def test_one_object_is_one_file(bucket: Bucket, agent: Agent) -> None:
    fetched(agent, bucket, [bucket.put("train.csv", b"1,2\n")], single="train.csv")
    assert tree(agent).read_bytes() == b"1,2\n"
    fetched(agent, bucket, [bucket.put("folder/train.csv", b"3\n")])
    assert (tree(agent) / "folder" / "train.csv").read_bytes() == b"3\n"


@pytest.mark.parametrize("key", ["../out", "/etc/passwd", "a/../../b", "a//b", "x/.."])
def test_nothing_leaves_the_tree(bucket: Bucket, agent: Agent, key: str) -> None:
    with pytest.raises(SyncError):
        fetched(agent, bucket, [Stored(key, 1, "1")])
    assert bucket.asked == []


def test_an_object_and_a_folder_of_one_name_are_refused(bucket: Bucket, agent: Agent) -> None:
    with pytest.raises(SyncError):
        fetched(agent, bucket, [bucket.put("a", b"x"), bucket.put("a/b", b"y")])


def test_a_link_in_the_tree_is_not_written_through(bucket: Bucket, agent: Agent, tmp_path: Path) -> None:
    tree(agent).mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tree(agent) / "a").symlink_to(tmp_path / "elsewhere")
    fetched(agent, bucket, [bucket.put("a/b", b"x")])
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert (tree(agent) / "a" / "b").read_bytes() == b"x"


def test_a_disk_that_is_too_small_is_said_before_a_byte_comes(bucket: Bucket, agent: Agent) -> None:
    with pytest.raises(SyncError, match="too small"):
        fetched(agent, bucket, [Stored("huge", 1 << 60, "1")])
    assert bucket.asked == []


def test_a_fetch_that_is_killed_goes_on_with_the_parts_that_are_missing(bucket: Bucket, agent: Agent) -> None:
    content = b"0123456789abcdef" * (PART * 3 // 16)
    objects = [bucket.put("large", content), *(bucket.put(f"s{number}", b"x") for number in range(5))]
    bucket.hold.clear()
    caller = threading.Thread(target=_ignoring, args=(agent, bucket, objects))
    caller.start()
    _until(lambda: bucket.asked.count("large") == 3)
    bucket.hold.set()
    _until(lambda: any(tree(agent).parent.glob("data-0.part/*.parts")) or (tree(agent) / "large").exists())
    _kill_fetches(agent)
    caller.join(60.0)
    parts = bucket.asked.count("large")
    assert fetched(agent, bucket, objects).manifest.entries
    assert (tree(agent) / "large").read_bytes() == content
    assert bucket.asked.count("large") - parts < 3


def _ignoring(agent: Agent, bucket: Bucket, objects: list[Stored]) -> None:
    try:
        fetched(agent, bucket, objects)
    except SyncError:
        pass


def _kill_fetches(agent: Agent) -> None:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().split(b"\0")
            if b"fetch" in words and any(word.startswith(os.fsencode(agent.root)) for word in words):
                os.kill(int(path.parent.name), signal.SIGKILL)


def _until(done: object, within: float = 60.0) -> None:
    assert callable(done)
    deadline = time.monotonic() + within
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.005)
