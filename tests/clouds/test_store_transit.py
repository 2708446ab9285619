"""Bytes that change or are lost between a store and an emulated bucket: nothing wrong is kept."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from orchestrator.errors import StorageFault
from orchestrator.model.backoff import Backoff
from orchestrator.storage import Corrupt, StorageDenied, StorageError, bucket, open_store
from tests.clouds.test_store_faults import Ground, ground

__all__ = ["ground"]

MARK = b"the-byte-that-flips"
WRONG = b"the-byte-that-flipS"


@contextmanager
def flipping(url: str, times: int) -> Iterator[str]:
    """A way to that server on which so many requests have a byte changed."""
    target = urlsplit(url)
    left = [times]
    listener = socket.create_server(("127.0.0.1", 0))

    def pump(source: socket.socket, to: socket.socket, flips: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 20):
                if flips and MARK in data and left[0]:
                    left[0] -= 1
                    data = data.replace(MARK, WRONG)
                to.sendall(data)
        for end in (source, to):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def accept() -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                server = socket.create_connection((target.hostname, target.port))
                for pair in ((client, server, True), (server, client, False)):
                    threading.Thread(target=pump, args=pair, daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def test_a_byte_that_flips_on_its_way_there_is_never_stored(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = b"x" * 1000 + MARK + b"y" * 1000
    with flipping(ground.cloud.url, 99) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
        store = open_store(ground.url)
        for call in (lambda: store.put("a", content), lambda: store.put_if("a", content, None)):
            with pytest.raises(StorageError):
                call()
            assert store.head("a") is None


def test_what_flipped_once_is_sent_again(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    content = b"x" * 1000 + MARK + b"y" * 1000
    if ground.kind == "gs":
        pytest.skip("Cloud Storage refuses it with a status that does not tell why")
    with flipping(ground.cloud.url, 1) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        store = open_store(ground.url)
        store.put_if("a", content, None)
        assert store.get("a") == content


def test_a_download_of_cloud_storage_is_verified_and_resumed(ground: Ground, tmp_path: Path) -> None:
    if ground.kind == "s3":
        pytest.skip("see test_store_hostile")
    content = os.urandom(1 << 20)
    store = ground.store
    store.put("a", content)
    name = ground.url.split("/")[2]
    fault = {"method": "storage.objects.get", "zone": name, "after": 1}
    ground.cloud.faults({**fault, "kind": "cut"})
    store.fetch("a", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == content
    assert not ground.cloud.state()["faults"]
    ground.cloud.faults({**fault, "kind": "corrupt", "times": 9})
    with pytest.raises(Corrupt):
        store.fetch("a", tmp_path / "second")
    assert not (tmp_path / "second").exists()
    ground.cloud.clear_faults()


def test_an_upload_in_parts_survives_cuts_and_lost_replies(ground: Ground, tmp_path: Path) -> None:
    content = os.urandom(bucket.AT_ONCE + (1 << 20))
    (tmp_path / "large").write_bytes(content)
    if ground.kind == "s3":
        ground.cloud.faults(
            {"action": "UploadPart", "drop": True, "times": 2},
            {"action": "UploadPart", "code": "SlowDown", "times": 1},
            {"action": "CompleteMultipartUpload", "drop": True, "after": True},
        )
    else:
        name = ground.url.split("/")[2]
        ground.cloud.faults({"method": "storage.objects.insert", "zone": name, "kind": "cut", "after": 2})
    store = ground.store
    stored = store.put("large", tmp_path / "large")
    assert not ground.cloud.state()["faults"]
    assert stored.size == len(content)
    assert store.fetch("large", tmp_path / "copy") == stored
    assert (tmp_path / "copy").read_bytes() == content


def test_parts_of_an_upload_that_failed_are_removed(ground: Ground, tmp_path: Path) -> None:
    if ground.kind == "gs":
        pytest.skip("an upload of Cloud Storage that is not ended holds nothing that costs")
    (tmp_path / "large").write_bytes(os.urandom(bucket.AT_ONCE + 1))
    ground.cloud.faults({"action": "UploadPart", "code": "AccessDenied", "times": 1})
    with pytest.raises(StorageDenied):
        ground.store.put("large", tmp_path / "large")
    name = ground.url.split("/")[2]
    assert "Uploads" not in ground.cloud.client("s3").list_multipart_uploads(Bucket=name)
    assert ground.store.head("large") is None


def test_no_login_at_google_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    for name in ("STORAGE_EMULATOR_HOST", "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(bucket, "BACKOFF", Backoff(base_s=0.01, cap_s=0.02))
    with pytest.raises(StorageDenied) as refused:
        open_store("gs://bucket/p").get("a")
    assert refused.value.fault is StorageFault.AUTH
    assert "login" in str(refused.value.next_command)
