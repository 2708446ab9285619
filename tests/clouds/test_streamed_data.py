"""Data of a bucket that come while the run goes on: `stream: true`, on both emulated clouds."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import orchestrator as orch
from orchestrator.errors import RunFailed
from orchestrator.model import Silent
from orchestrator.runtime.fetch import mounting
from orchestrator.storage import Store, open_store
from orchestrator.sync import CannotStream
from tests.clouds.signing import new_bucket
from tests.e2e.project import until
from tests.unit import here_cloud
from tests.unit.here_cloud import HereCloud

HELD = b"the-bytes-that-are-held-back"
SCRIPT = """
import os, pathlib
top = pathlib.Path("images")
sizes = {path.name: path.stat().st_size for path in sorted(top.rglob("*")) if path.is_file()}
print("begun", sizes, flush=True)
pathlib.Path("read.txt").write_text((top / "z.bin").read_bytes()[:5].decode())
"""


@pytest.fixture(scope="module", autouse=True)
def _mounts(tmp_path_factory: pytest.TempPathFactory) -> None:
    place = str(tmp_path_factory.mktemp("tried"))
    try:
        os.close(mounting.mount(place))
    except mounting.CannotMount as error:
        pytest.skip(f"nothing can be mounted here: {error}")
    mounting.unmount(place)


@contextmanager
def holding(url: str) -> Iterator[tuple[str, threading.Event]]:
    """A way to that server on which answers that hold HELD wait for the event."""
    target, go = urlsplit(url), threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))

    def pump(source: socket.socket, to: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 20):
                if HELD in data:
                    go.wait(120)
                to.sendall(data)
        for end in (source, to):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def accept() -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                server = socket.create_connection((target.hostname, target.port))
                threading.Thread(target=_copy, args=(client, server), daemon=True).start()
                threading.Thread(target=pump, args=(server, client), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", go
    finally:
        go.set()
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def _copy(source: socket.socket, to: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 20):
            to.sendall(data)
    with suppress(OSError):
        to.shutdown(socket.SHUT_WR)


@pytest.fixture(params=["s3", "gs"])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Store:
    made = open_store(f"{new_bucket(request, monkeypatch, tmp_path)}/data/images")
    for key, content in {"a/1.bin": b"one" * 999, "b.bin": b"", "z.bin": b"last." + HELD}.items():
        made.put(key, content)
    return made


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HereCloud:
    return here_cloud.cloud(tmp_path / "machines", monkeypatch, prepared=True)


def profile_of(folder: Path, store: Store, script: str = SCRIPT) -> Path:
    more = f"data:\n  - source: {store.url}\n    stream: true\n"
    return here_cloud.project(folder, script, more=more)


def _endpoint() -> str:
    return os.environ.get("STORAGE_EMULATOR_HOST") or os.environ["AWS_ENDPOINT_URL"]


def test_the_run_begins_while_its_machine_still_pulls_and_reads_what_is_pinned(
    store: Store, cloud: HereCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "p"
    with holding(_endpoint()) as (url, go):
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
        orch.up(profile_of(folder, store), folder=folder)
        try:
            orch.train(run_id="one", folder=folder, detach=True)
            (machine,) = cloud.alive()
            log = cloud.base(machine.id) / "runs/one/output.log"
            until(lambda: b"begun" in log.read_bytes(), 60)
            assert log.read_text() == "begun {'1.bin': 2997, 'b.bin': 0, 'z.bin': 33}\n"
            assert not (cloud.base(machine.id) / "trees/data-0/z.bin").exists()
            go.set()
            done = orch.watch("one", folder=folder)
            assert done.exit["reason"] == "completed", done.exit
            assert (folder / "runs/one/outputs/read.txt").read_text() == "last."
            assert done.data is not None
            assert (done.data["files"], done.data["bytes"], done.data["streamed"]) == (3, 3030, 1)
            again = orch.train(run_id="two", folder=folder)
            assert again.data == done.data, "data that are there by now are the same data"
        finally:
            orch.down(folder=folder)
    assert not [place for place in mounting.mounted() if str(tmp_path) in place]


class _Meddling(Silent):
    """What changes an object once the machine has asked for links."""

    def __init__(self, act: Any) -> None:
        self._act = act

    def say(self, text: str) -> None:
        if "is downloaded during the run" in text:
            return
        if " links of " in text:
            self._act()


@pytest.mark.usefixtures("cloud")
def test_data_that_the_run_replaced_are_not_called_the_same(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "p"
    script = 'import pathlib\nhere = pathlib.Path("images/z.bin")\nhere.unlink()\nhere.write_bytes(b"mine")\n'
    orch.up(profile_of(folder, store, script), folder=folder)
    try:
        done = orch.train(run_id="one", folder=folder)
        assert done.data is not None
        assert done.data["altered"] == ["z.bin"]
    finally:
        orch.down(folder=folder)


@pytest.mark.usefixtures("cloud")
@pytest.mark.parametrize("what", ["deleted", "replaced"])
def test_an_object_that_does_not_come_fails_the_run_by_name(store: Store, tmp_path: Path, what: str) -> None:
    folder = tmp_path / "p"
    orch.up(profile_of(folder, store), folder=folder)

    def meddle() -> None:
        if what == "deleted":
            store.delete("z.bin")
        else:
            store.put("z.bin", b"other bytes of another length")

    try:
        with pytest.raises(RunFailed) as caught:
            orch.train(run_id="one", folder=folder, progress=_Meddling(meddle))
        assert "z.bin" in str(caught.value)
        record = json.loads((folder / "runs/one/run.json").read_text())
        assert record["exit"]["reason"] == "data_failed"
    finally:
        orch.down(folder=folder)


@pytest.mark.usefixtures("cloud")
def test_a_machine_that_cannot_show_data_fetches_them_first(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, said = tmp_path / "p", []

    class Heard(Silent):
        def say(self, text: str) -> None:
            said.append(text)

    def refused(*_: Any, **__: Any) -> None:
        raise CannotStream("the-machine", "this machine has no /dev/fuse")

    monkeypatch.setattr("orchestrator.session.streaming.sync.stream", refused)
    orch.up(profile_of(folder, store), folder=folder)
    try:
        done = orch.train(run_id="one", folder=folder, progress=Heard())
        assert done.succeeded
        assert any("no /dev/fuse" in text for text in said)
        assert (folder / "runs/one/outputs/read.txt").read_text() == "last."
    finally:
        orch.down(folder=folder)
