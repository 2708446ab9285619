"""A machine fetches objects of odd names, and from stores that answer oddly."""

from __future__ import annotations

import gzip
import os
import signal
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from urllib.parse import quote

import pytest

from orchestrator import sync
from orchestrator.errors import SyncError
from orchestrator.hosts.here import HereHost
from orchestrator.model import Agent
from orchestrator.model.stores import Link, Stored
from orchestrator.runtime.fetch.staging import PART
from tests.unit.sync.test_fetch import Bucket, Handler, _ignoring, _until, bucket, checksum, fetched, tree

__all__ = ["bucket"]
CONTENT = b"0123456789abcdef" * 1000


def quoted(bucket: Bucket, of: Stored) -> Link:
    return bucket.link(Stored(quote(of.key), of.size, of.version))


@pytest.mark.parametrize(
    "key", ["a b/ü ß 日本/%41+?#&.bin", "-rf", "~root", "a\\b", "$(id)", "x" * 255, "/".join(["ä" * 100] * 5)]
)
def test_an_odd_name_is_the_name_of_its_file(bucket: Bucket, agent: Agent, key: str) -> None:
    of = Stored(key, len(CONTENT), "1", checksum(CONTENT, "md5"))
    bucket.objects[quote(key)] = CONTENT
    sync.fetch(HereHost(), agent, [of], "data-0", partial(quoted, bucket))
    assert (tree(agent) / key).read_bytes() == CONTENT


@pytest.mark.parametrize("key", ["folder/", "x" * 256, f"a/{'ä' * 200}/b", "."])
def test_a_key_that_cannot_be_a_file_is_refused_before_a_byte_comes(
    bucket: Bucket, agent: Agent, key: str
) -> None:
    with pytest.raises(SyncError, match="is refused"):
        fetched(agent, bucket, [Stored(key, 1, "1")])
    assert bucket.asked == []


def busy(to: Handler, _: bytes) -> None:
    to.answer(503, b"<Error><Code>SlowDown</Code></Error>")


def cut(to: Handler, content: bytes) -> None:
    to.answer(206, content, f"bytes 0-{len(content) - 1}/{len(content)}", len(content) // 3)


@pytest.mark.parametrize("fault", [busy, cut])
def test_what_passes_is_waited_for(
    bucket: Bucket, agent: Agent, fault: Callable[[Handler, bytes], None]
) -> None:
    objects = [bucket.put("x", CONTENT)]
    bucket.odd["x"] = [fault]
    assert fetched(agent, bucket, objects).damaged == 0
    assert (tree(agent) / "x").read_bytes() == CONTENT


def shorter(to: Handler, content: bytes) -> None:
    to.answer(206, content[:-1], f"bytes 0-{len(content) - 2}/{len(content) - 1}")


@pytest.mark.parametrize(
    ("fault", "named"),
    [
        (lambda to, _: to.answer(416, b"<Error><Code>InvalidRange</Code></Error>"), "changed"),
        (lambda to, _: to.answer(412, b""), "changed"),
        (shorter, "malformed"),
        (lambda to, _: to.answer(200, b"<html>sign in</html>"), "malformed"),
        (lambda to, _: to.answer(400, b"stored using a form of Server Side Encryption"), "refused"),
    ],
    ids=["416", "412", "shorter", "a portal", "SSE-C"],
)
@pytest.mark.parametrize("algorithm", ["md5", ""])
def test_an_object_that_is_another_now_is_named(
    bucket: Bucket, agent: Agent, fault: Callable[[Handler, bytes], None], named: str, algorithm: str
) -> None:
    objects = [bucket.put("x", CONTENT, algorithm)]
    bucket.odd["x"] = [fault] * 9
    with pytest.raises(sync.ObjectRefused) as caught:
        fetched(agent, bucket, objects)
    assert (caught.value.fault, caught.value.key) == (named, "x")
    assert not (tree(agent) / "x").exists()


def test_what_is_stored_compressed_comes_as_it_is_stored(bucket: Bucket, agent: Agent) -> None:
    """Cloud Storage unpacks an object of Content-Encoding gzip for whoever does not say that they take it."""
    packed = gzip.compress(CONTENT)

    def transcoding(to: Handler, content: bytes) -> None:
        taken = "gzip" in to.headers.get("Accept-Encoding", "")
        ranged = f"bytes 0-{len(content) - 1}/{len(content)}"
        to.answer(*((206, content, ranged) if taken else (200, CONTENT)))

    objects = [bucket.put("x.csv", packed, "crc32c")]
    bucket.odd["x.csv"] = [transcoding]
    assert fetched(agent, bucket, objects).damaged == 0
    assert (tree(agent) / "x.csv").read_bytes() == packed


def test_many_objects_come_by_several_processes_that_all_end(bucket: Bucket, agent: Agent) -> None:
    contents = {f"d{number % 7}/{number}": os.urandom(number) for number in range(450)}
    contents["large"] = os.urandom(PART * 2 + 5)
    objects = [bucket.put(key, content) for key, content in contents.items()]
    bucket.flips["d3/3"], bucket.flips["large"] = 1, 1
    bucket.expire_after["d5/5"] = 1
    found = fetched(agent, bucket, objects)
    assert (found.fetched, found.damaged) == (len(contents), 2)
    assert {key: (tree(agent) / key).read_bytes() for key in contents} == contents
    _until(lambda: not fetching(agent))


def test_a_fetching_process_that_is_killed_ends_the_fetch_and_the_next_goes_on(
    bucket: Bucket, agent: Agent
) -> None:
    objects = [bucket.put(f"{number:03}", b"%d" % number * 9) for number in range(400)]
    bucket.hold.clear()
    caller = threading.Thread(target=_ignoring, args=(agent, bucket, objects))
    caller.start()
    _until(lambda: len(bucket.asked) >= 20)
    os.kill(max(fetching(agent)), signal.SIGKILL)
    bucket.hold.set()
    caller.join(60.0)
    assert not caller.is_alive()
    _until(lambda: not fetching(agent))
    assert fetched(agent, bucket, objects).damaged == 0
    assert (tree(agent) / "399").read_bytes() == b"399" * 9


@pytest.mark.parametrize(
    "noted", ["0\n", ";\n", "another-boot:0;\n", "another-boot:8388608;\nanother-boot:0;\n"]
)
def test_parts_of_which_nothing_is_certain_come_again(bucket: Bucket, agent: Agent, noted: str) -> None:
    """After a restart of the machine the list of parts may be on its disk, and the parts may not."""
    content = os.urandom(PART + 77)
    of = bucket.put("large", content, "")
    stage = Path(agent.base) / "trees/data-0.part"
    stage.mkdir(parents=True)
    name = _name(of)
    (stage / name).write_bytes(bytes(len(content)))
    (stage / f"{name}.parts").write_text(noted)
    fetched(agent, bucket, [of])
    assert (tree(agent) / "large").read_bytes() == content


def _name(of: Stored) -> str:
    from orchestrator.runtime.fetch.staging import Staging, Wanted

    return Staging("").name(Wanted(of.key, of.size, of.version, of.checksum))


def fetching(agent: Agent) -> list[int]:
    """The processes of the agent's fetch."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"fetch" in words and any(word.startswith(os.fsencode(agent.root)) for word in words):
            found.append(int(path.parent.name))
    return found
