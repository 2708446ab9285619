"""What can go wrong between a store and its bucket: throttling, cuts, lost replies, damage, refusals.

The facts: S3 answers 409 ConditionalRequestConflict where two conditional writes meet, to be sent again,
and 412 where the condition does not hold (docs.aws.amazon.com, PutObject, If-None-Match); a condition on an
absent object is 404 NoSuchKey. The ChecksumSHA256 of an object in parts is that of its parts' checksums
(docs.aws.amazon.com, "Checking object integrity"). Cloud Storage answers 412 conditionNotMet, 429 and 503
(cloud.google.com/storage/docs/json_api/v1/status-codes).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import StorageFault
from orchestrator.model.backoff import Backoff
from orchestrator.storage import (
    Changed,
    Missing,
    StorageDenied,
    StorageError,
    StorageUnreachable,
    Store,
    bucket,
    open_store,
)

CONTENT = os.urandom(1 << 20)


@dataclass(frozen=True)
class Ground:
    """One cloud, its faults by common names."""

    kind: str
    cloud: Any
    url: str

    @property
    def store(self) -> Store:
        return open_store(self.url)

    def fail(self, operation: str, how: str, **more: Any) -> None:
        self.cloud.faults(_FAULTS[self.kind](operation, how, more))

    def sent(self, operation: str) -> int:
        if self.kind == "s3":
            return len(self.cloud.requests(_S3[operation]))
        calls = self.cloud.calls(_GS[operation])
        return len([call for call in calls if call["zone"] == self.url.split("/")[2]])


_S3 = {
    "put": "PutObject",
    "get": "GetObject",
    "head": "HeadObject",
    "list": "ListObjectsV2",
    "delete": "DeleteObject",
}
_GS = {
    "put": "storage.objects.insert",
    "get": "storage.objects.get",
    "head": "storage.objects.get",
    "list": "storage.objects.list",
    "delete": "storage.objects.delete",
}


def _s3_fault(operation: str, how: str, more: dict[str, Any]) -> dict[str, Any]:
    kinds: dict[str, dict[str, Any]] = {
        "throttled": {"code": "SlowDown"},
        "internal": {"code": "InternalError"},
        "reset": {"drop": True},
        "lost": {"drop": True, "after": True},
        "denied": {"code": "AccessDenied"},
        "expired": {"code": "ExpiredToken", "status": 400},
        "conflict": {"code": "ConditionalRequestConflict"},
    }
    return {"action": _S3[operation], **kinds[how], **more}


def _gs_fault(operation: str, how: str, more: dict[str, Any]) -> dict[str, Any]:
    kinds: dict[str, dict[str, Any]] = {
        "throttled": {"kind": "too_many"},
        "internal": {"kind": "unavailable"},
        "reset": {"kind": "reset"},
        "lost": {"kind": "reset", "after_effect": True},
        "denied": {"kind": "forbidden"},
        "expired": {"kind": "unauthorized"},
        "conflict": {"kind": "rate_limit"},
    }
    return {"method": _GS[operation], **kinds[how], **more}


_FAULTS: dict[str, Callable[[str, str, dict[str, Any]], dict[str, Any]]] = {"s3": _s3_fault, "gs": _gs_fault}


@pytest.fixture(params=["s3", "gs"])
def ground(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ground]:
    cloud = request.getfixturevalue("shared_aws" if request.param == "s3" else "shared_google")
    for name, value in cloud.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(bucket, "BACKOFF", Backoff(base_s=0.01, cap_s=0.02))
    cloud.clear_faults()
    name = f"bucket-{os.urandom(6).hex()}"
    if request.param == "s3":
        cloud.forget_requests()
        cloud.client("s3").create_bucket(Bucket=name)
    else:
        from google.cloud import storage

        storage.Client().create_bucket(name)
    yield Ground(request.param, cloud, f"{request.param}://{name}/p")
    cloud.clear_faults()


@pytest.mark.parametrize("how", ["throttled", "internal", "reset", "lost"])
def test_what_passes_is_waited_for(ground: Ground, tmp_path: Path, how: str) -> None:
    store = ground.store
    store.put("seen", b"x")
    for operation, call in (
        ("put", lambda: store.put("a", CONTENT)),
        ("head", lambda: store.head("a")),
        ("get", lambda: store.get("a")),
        ("get", lambda: store.fetch("a", tmp_path / "copy")),
        ("list", lambda: list(store.list())),
        ("delete", lambda: store.delete("a")),
    ):
        ground.fail(operation, how, times=2)
        call()
        assert not ground.cloud.state()["faults"], operation
    assert (tmp_path / "copy").read_bytes() == CONTENT
    assert [stored.key for stored in store.list()] == ["seen"]


def test_what_does_not_pass_ends_as_unreachable(ground: Ground) -> None:
    store = ground.store
    store.put("a", b"x")
    ground.fail("get", "throttled", times=50)
    with pytest.raises(StorageUnreachable) as failed:
        store.get("a")
    assert failed.value.fault is StorageFault.THROTTLED
    assert failed.value.exit_code == 8
    assert ground.sent("get") < 20


@pytest.mark.parametrize("how", ["lost", "reset", "throttled", "conflict"])
def test_a_conditional_write_whose_reply_is_lost_is_ours(ground: Ground, how: str) -> None:
    store = ground.store
    ground.fail("put", how)
    first = store.put_if("lock", b"mine 1", None)
    assert store.get("lock", first.version) == b"mine 1"
    ground.fail("put", how)
    second = store.put_if("lock", b"mine 2", first.version)
    assert store.head("lock") == second
    assert store.get("lock") == b"mine 2"


def test_a_lost_reply_makes_nobody_a_winner_over_others(ground: Ground) -> None:
    """Our write was not carried out, its reply was lost, and another writer came first."""
    store = ground.store
    first = store.put_if("lock", b"theirs", None)
    ground.fail("put", "reset")
    with pytest.raises(Changed):
        store.put_if("lock", b"mine", None)
    with pytest.raises(Changed):
        store.put_if("lock", b"theirs", None)
    assert store.head("lock") == first


def test_a_deletion_whose_reply_is_lost_is_done(ground: Ground) -> None:
    store = ground.store
    stored = store.put("a", b"x")
    ground.fail("delete", "lost")
    store.delete("a", stored.version)
    assert store.head("a") is None


@pytest.mark.parametrize(("how", "fault"), [("denied", StorageFault.DENIED), ("expired", StorageFault.AUTH)])
def test_a_refusal_names_what_to_do(ground: Ground, how: str, fault: StorageFault) -> None:
    store = ground.store
    store.put("a", b"x")
    for operation, call in (
        ("put", lambda: store.put("a", b"y")),
        ("get", lambda: store.get("a")),
        ("list", lambda: list(store.list())),
        ("delete", lambda: store.delete("a")),
    ):
        ground.fail(operation, how)
        with pytest.raises(StorageDenied) as refused:
            call()
        assert refused.value.fault is fault
        assert refused.value.exit_code == 3
        assert refused.value.next_command
    assert store.get("a") == b"x"


def test_a_bucket_that_is_not_there_is_told_from_an_object(ground: Ground, tmp_path: Path) -> None:
    absent = open_store(ground.url.replace("bucket-", "absent-"))
    for call in (
        lambda: absent.put("a", b"x"),
        lambda: absent.put_if("a", b"x", None),
        lambda: absent.get("a"),
        lambda: absent.head("a"),
        lambda: absent.fetch("a", tmp_path / "copy"),
        lambda: list(absent.list()),
        lambda: absent.delete("a"),
    ):
        with pytest.raises(StorageError) as refused:
            call()
        assert not isinstance(refused.value, Missing)
        assert refused.value.fault is StorageFault.BUCKET
        assert "mb" in str(refused.value.next_command) or "create" in str(refused.value.next_command)
    with pytest.raises(Missing):
        ground.store.get("a")


def test_a_large_file_goes_in_parts_and_comes_whole(ground: Ground, tmp_path: Path) -> None:
    content = os.urandom(bucket.AT_ONCE + (3 << 20))
    (tmp_path / "large").write_bytes(content)
    store = ground.store
    stored = store.put("large", tmp_path / "large")
    assert stored.size == len(content)
    assert stored.checksum
    assert store.head("large") == stored
    assert store.fetch("large", tmp_path / "copy", stored.version) == stored
    assert (tmp_path / "copy").read_bytes() == content
