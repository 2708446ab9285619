"""Data in a bucket that an isolated machine cannot reach: they come by way of this computer."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import orchestrator as orch
from orchestrator.session import buckets
from orchestrator.session.trees import facts_of
from orchestrator.storage import Store, open_store
from orchestrator.sync import listed_manifest
from tests.clouds.conftest import shared_aws  # noqa: F401
from tests.clouds.signing import new_bucket
from tests.e2e.project import Project
from tests.unit import here_cloud

pytestmark = pytest.mark.machine

SCRIPT = """
import pathlib
top = pathlib.Path("images")
found = sorted((str(p.relative_to(top)), p.read_bytes()) for p in top.rglob("*") if p.is_file())
pathlib.Path("sum.txt").write_text(repr(found))
"""


@pytest.fixture(params=["s3"])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Store]:
    made = open_store(f"{new_bucket(request, monkeypatch, tmp_path)}/data/images")
    for key, content in {"a/1.bin": b"one" * 999, "a/ü 2.bin": b"two", "b.bin": b""}.items():
        made.put(key, content)
    yield made


@contextmanager
def at(address: str) -> Iterator[str]:
    """The bucket's server at another address of this computer, which it does not know."""
    behind = urlsplit(os.environ["AWS_ENDPOINT_URL"])
    listener = socket.create_server((address, 0))

    def pump(source: socket.socket, to: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 20):
                to.sendall(data)
        with suppress(OSError):
            to.shutdown(socket.SHUT_WR)

    def accept() -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                server = socket.create_connection((behind.hostname, behind.port))
                for ends in ((client, server), (server, client)):
                    threading.Thread(target=pump, args=ends, daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"http://{address}:{listener.getsockname()[1]}"
    finally:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def read_by(project: Project, run_id: str) -> str:
    return (project.folder / f"runs/{run_id}/outputs/sum.txt").read_text()


def test_an_isolated_machine_gets_the_objects_as_one_that_reaches_the_bucket(
    store: Store, project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = project.folder / "orch.yaml"
    (project.folder / "train.py").write_text(SCRIPT)
    profile.write_text(f"{profile.read_text()}  outputs: [sum.txt]\ndata:\n  - source: {store.url}\n")
    project.orch("up", "orch.yaml")
    said = project.orch("train", "--run-id", "one")
    assert f"{store.url} is downloaded to this computer and sent to" in said.err
    assert "it cannot reach 127.0.0.1:" in said.err and "Traceback" not in said.err
    assert read_by(project, "one") == repr([("a/1.bin", b"one" * 999), ("a/ü 2.bin", b"two"), ("b.bin", b"")])

    reached = here_cloud.cloud(tmp_path / "machines", monkeypatch, prepared=True)
    folder = tmp_path / "reached"
    orch.up(here_cloud.project(folder, SCRIPT, more=f"data:\n  - source: {store.url}\n"), folder=folder)
    fetched = orch.train(run_id="one", folder=folder)
    relayed = json.loads((project.folder / "runs/one/run.json").read_text())
    assert reached.alive() and fetched.data == relayed["data"]
    orch.down(folder=folder)


def test_an_isolated_machine_shows_no_data_while_they_come_and_fetches_them_first(
    store: Store, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although it reaches the bucket, at the one address of this computer that it knows: its link's."""
    profile = project.folder / "orch.yaml"
    (project.folder / "train.py").write_text(SCRIPT)
    streamed = f"data:\n  - source: {store.url}\n    stream: true\n"
    profile.write_text(f"{profile.read_text()}  outputs: [sum.txt]\n{streamed}")
    project.orch("up", "orch.yaml")
    there = project.orch("ssh", "--", "cat", "/proc/net/fib_trie").out
    (address, *_) = re.findall(r"-- (10\.77\.\d+\.\d+)$", there, re.MULTILINE)
    with at(str(ipaddress.ip_network(f"{address}/30", strict=False)[1])) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        said = project.orch("train", "--run-id", "one")
    assert "is downloaded before the run starts, despite `stream: true`" in said.err
    assert "root may mount nothing on this machine" in said.err
    assert read_by(project, "one") == repr([("a/1.bin", b"one" * 999), ("a/ü 2.bin", b"two"), ("b.bin", b"")])


def test_objects_that_changed_are_refused_and_only_they_are_downloaded_again(
    store: Store, project: Project
) -> None:
    profile = project.folder / "orch.yaml"
    (project.folder / "train.py").write_text(SCRIPT)
    profile.write_text(f"{profile.read_text()}  outputs: [sum.txt]\ndata:\n  - source: {store.url}\n")
    project.orch("up", "orch.yaml")
    project.orch("train", "--run-id", "one")
    assert " objects are downloaded" not in project.orch("train", "--run-id", "same").err
    store.put("a/ü 2.bin", b"TWO")
    store.delete("b.bin")
    assert "differs" in project.json("train", "--run-id", "two", code=5)["error"]["message"]
    said = project.orch("train", "--run-id", "two", "--new-data").err
    assert "1 object" in said
    assert read_by(project, "two") == repr([("a/1.bin", b"one" * 999), ("a/ü 2.bin", b"TWO")])
    shutil.rmtree(project.folder / ".orch/relayed")  # as a user may who needs the space
    project.orch("train", "--run-id", "three")
    assert read_by(project, "three") == read_by(project, "two")


def test_staged_data_go_directly_to_a_machine_that_cannot_reach_the_store(
    store: Store, project: Project
) -> None:
    profile = project.folder / "orch.yaml"
    (project.folder / "train.py").write_text(SCRIPT)
    (project.folder / "images").mkdir()
    (project.folder / "images/one.bin").write_bytes(b"one")
    more = f"  outputs: [sum.txt]\nstore: {store.url}\ndata:\n  - source: images\n    stage: true\n"
    profile.write_text(profile.read_text() + more)
    project.orch("up", "orch.yaml")
    said = project.orch("train", "--run-id", "one")
    assert "data-0 is sent from this computer, because it cannot reach 127.0.0.1:" in said.err
    assert read_by(project, "one") == repr([("one.bin", b"one")])
    assert [each.key for each in store.list("blobs/")] == []


def test_streamed_data_are_the_same_data_though_they_come_before_the_run(
    store: Store, project: Project
) -> None:
    (project.folder / "train.py").write_text(SCRIPT)
    profile = project.folder / "orch.yaml"
    more = f"  outputs: [sum.txt]\ndata:\n  - source: {store.url}\n    stream: true\n"
    profile.write_text(profile.read_text() + more)
    project.orch("up", "orch.yaml")
    record = project.json("train", "--run-id", "one")
    assert read_by(project, "one") == repr([("a/1.bin", b"one" * 999), ("a/ü 2.bin", b"two"), ("b.bin", b"")])
    streamed = listed_manifest(buckets.listed(store.url).objects)
    assert record["data"]["digest"] == facts_of([streamed])["digest"]
