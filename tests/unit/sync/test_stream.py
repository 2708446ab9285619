"""A machine shows objects by name and size at once, and lets nobody open one before it is there, verified."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator import sync
from orchestrator.hosts.here import HereHost
from orchestrator.model import Agent
from orchestrator.model.stores import Stored
from orchestrator.runtime.fetch import mounting
from orchestrator.runtime.rundir import read_json
from tests.unit.far_side import agent_at
from tests.unit.sync.test_fetch import Bucket, bucket, checksum

__all__ = ["bucket"]

pytestmark = pytest.mark.usefixtures("mounts")


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    made = agent_at(tmp_path / "far")
    yield made
    for state in (tmp_path / "far").glob("trees/*.stream/state.json"):
        _end(state)
        mounting.unmount(str(state.parent / "tree"))


@pytest.fixture(scope="module")
def mounts(tmp_path_factory: pytest.TempPathFactory) -> None:
    place = str(tmp_path_factory.mktemp("tried"))
    try:
        os.close(mounting.mount(place))
    except mounting.CannotMount as error:
        pytest.skip(f"nothing can be mounted here: {error}")
    mounting.unmount(place)


def _end(state: Path, number: int = signal.SIGTERM) -> None:
    told = read_json(str(state)) or {}
    if told.get("pid"):
        try:
            os.kill(told["pid"], number)
        except ProcessLookupError:
            return


def shown(agent: Agent, bucket: Bucket, objects: list[Stored], single: str = "") -> sync.Streamed:
    found = sync.stream(HereHost(), agent, objects, "data-0", bucket.link, single=single)
    assert found is not None
    return found


def state_of(streamed: sync.Streamed, wanted: str) -> dict[str, Any]:
    """What the state says once it is `wanted`."""
    give_up = time.monotonic() + 60
    while (told := read_json(streamed.state) or {}).get("state") != wanted:
        assert time.monotonic() < give_up, told
        time.sleep(0.02)
    return told


def opening(path: Path) -> subprocess.Popen[str]:
    """Another process that opens a file, and prints what it read, or the number of the error."""
    script = (
        "import sys\ntry:\n    print(open(sys.argv[1], 'rb').read().hex())\n"
        "except OSError as error:\n    print(error.errno)"
    )
    return subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True)


def test_names_and_sizes_are_there_at_once_and_an_open_waits_for_the_content(
    bucket: Bucket,
    agent: Agent,
) -> None:
    contents = {f"d/{number:02}": bytes([number]) * (1000 * number) for number in range(90)}
    objects = [bucket.put(key, content) for key, content in contents.items()]
    bucket.hold.clear()
    streamed = shown(agent, bucket, objects)
    top = Path(streamed.mount)
    assert {path.name: path.stat().st_size for path in (top / "d").iterdir()} == {
        key.removeprefix("d/"): len(content) for key, content in contents.items()
    }
    assert not (top / "absent").exists()
    with pytest.raises(OSError, match="Read-only"):
        (top / "d" / "new").write_bytes(b"x")
    reader, doomed = opening(top / "d/89"), opening(top / "d/40")
    time.sleep(0.3)
    assert reader.poll() is None, "it was opened before its content was there"
    doomed.kill()
    assert doomed.wait(30) == -signal.SIGKILL, "who waits for a file can be killed"
    assert shown(agent, bucket, objects) == streamed, "a second call finds the first one's process"
    bucket.hold.set()
    assert reader.communicate(timeout=60)[0].strip() == contents["d/89"].hex()
    state_of(streamed, "done")
    for key, content in contents.items():
        assert (top / key).read_bytes() == content == Path(sync.tree_path(agent, "data-0"), key).read_bytes()
    assert sync.stream(HereHost(), agent, objects, "data-0", bucket.link) is None
    asked = len(bucket.asked)
    done = sync.fetch(HereHost(), agent, objects, "data-0", bucket.link)
    assert (done.fetched, len(bucket.asked)) == (0, asked)


def test_what_is_waited_for_comes_before_what_stands_first(bucket: Bucket, agent: Agent) -> None:
    objects = [bucket.put(f"{number:04}", b"%d" % number) for number in range(600)]
    bucket.hold.clear()
    streamed = shown(agent, bucket, objects)
    reader = opening(Path(streamed.mount, "0599"))
    give_up = time.monotonic() + 30
    while len(bucket.asked) < 24 and time.monotonic() < give_up:
        time.sleep(0.02)
    time.sleep(1.2)  # the wish is known
    bucket.hold.set()
    assert reader.communicate(timeout=60)[0].strip() == b"599".hex()
    assert bucket.asked.index("0599") < 300


@pytest.mark.parametrize("fault", ["flipped", "gone", "changed_size"])
def test_an_object_that_does_not_come_is_named_and_fails_who_waits(
    bucket: Bucket,
    agent: Agent,
    fault: str,
) -> None:
    objects = [bucket.put("good", b"good"), bucket.put("bad", b"bad bytes")]
    if fault == "flipped":
        bucket.flips["bad"] = 99
    elif fault == "gone":
        del bucket.objects["bad"]
    else:
        bucket.objects["bad"] = b"less"
    streamed = shown(agent, bucket, objects)
    assert opening(Path(streamed.mount, "bad")).communicate(timeout=60)[0].strip() == "5", "EIO"
    told = state_of(streamed, "failed")
    assert told["path"] == "bad"
    assert not Path(sync.tree_path(agent, "data-0"), "bad").exists()


def test_a_byte_that_flips_once_comes_again_and_nobody_sees_it(bucket: Bucket, agent: Agent) -> None:
    objects = [bucket.put("x", b"content", "crc32c")]
    bucket.flips["x"] = 1
    streamed = shown(agent, bucket, objects)
    assert Path(streamed.mount, "x").read_bytes() == b"content"


def test_a_killed_process_leaves_no_half_and_the_next_goes_on(bucket: Bucket, agent: Agent) -> None:
    objects = [bucket.put(f"{number}", bytes([number]) * 100_000) for number in range(40)]
    bucket.hold.clear()
    streamed = shown(agent, bucket, objects)
    reader = opening(Path(streamed.mount, "7"))
    time.sleep(0.2)
    _end(Path(streamed.state), signal.SIGKILL)
    assert reader.communicate(timeout=60)[0].strip() in ("103", "107"), "no bytes"
    with pytest.raises(OSError):
        Path(streamed.mount, "8").read_bytes()
    bucket.hold.set()
    again = shown(agent, bucket, objects)
    assert Path(again.mount, "7").read_bytes() == bucket.objects["7"]
    state_of(again, "done")


def test_other_objects_end_the_stream_before(bucket: Bucket, agent: Agent) -> None:
    before = [bucket.put("x", b"old")]
    bucket.hold.clear()
    shown(agent, bucket, before)
    bucket.hold.set()
    now = [Stored("x", 3, "new", checksum(b"new", "md5"))]
    bucket.objects["x"] = b"new"
    streamed = shown(agent, bucket, now)
    assert Path(streamed.mount, "x").read_bytes() == b"new"


def test_one_object_is_one_file(bucket: Bucket, agent: Agent) -> None:
    streamed = shown(agent, bucket, [bucket.put("x", b"content")], single="x")
    assert Path(streamed.mount).read_bytes() == b"content"
    state_of(streamed, "done")
    assert Path(sync.tree_path(agent, "data-0")).read_bytes() == b"content"


def test_a_machine_that_cannot_mount_says_why(
    bucket: Bucket,
    tmp_path: Path,
) -> None:
    before = (
        "import os\nthere = os.path.exists\nos.path.exists = lambda path: path != '/dev/fuse' and there(path)"
    )
    agent = agent_at(tmp_path / "other", before)
    with pytest.raises(sync.CannotStream) as caught:
        sync.stream(HereHost(), agent, [bucket.put("x", b"content")], "data-0", bucket.link)
    assert "/dev/fuse" in caught.value.why


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_another_user_than_root_is_told_of_the_helper(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    reading, writing = os.pipe()
    if os.fork() == 0:
        try:
            os.setresuid(65534, 65534, 65534)
            mounting.mount("/tmp")
        except mounting.CannotMount as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    assert b"fusermount3" in os.read(reading, 1000)
    os.close(reading)


@pytest.mark.skipif(not shutil.which("fusermount3"), reason="fusermount3 (Debian's fuse3) is not installed")
def test_the_helper_mounts_where_the_kernel_refuses_the_call(
    bucket: Bucket,
    tmp_path: Path,
) -> None:
    before = (
        "import orch_runtime.fetch.mounting as m\n"
        "def refused(place):\n    raise PermissionError(1, 'Operation not permitted')\n"
        "m._by_the_kernel = refused"
    )
    agent = agent_at(tmp_path / "far", before)
    streamed = shown(agent, bucket, [bucket.put("x", b"content")])
    assert Path(streamed.mount, "x").read_bytes() == b"content"
    state_of(streamed, "done")
    _end(Path(streamed.state))
    mounting.unmount(streamed.mount)
