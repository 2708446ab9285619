"""The emulated Cloud Storage, by Google's own client: preconditions bite, and losses are found out."""

from __future__ import annotations

import base64
import os
import threading
from typing import Any

import pytest

storage = pytest.importorskip("google.cloud.storage")
pytest.importorskip("googleapiclient")

from google.api_core import exceptions  # noqa: E402
from google.auth.credentials import AnonymousCredentials  # noqa: E402

from tests.clouds.gcp import Cloud  # noqa: E402

RACERS = 16
LARGE = 9 << 20  # beyond what the client sends at once


@pytest.fixture
def cloud(shared_google: Cloud) -> Cloud:
    return shared_google


@pytest.fixture
def client(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Any:
    """As a user would have it: by the environment alone."""
    cloud.clear_faults()
    for key, value in cloud.env.items():
        monkeypatch.setenv(key, value)
    return storage.Client()


@pytest.fixture
def bucket(client: Any) -> Any:
    return client.create_bucket(f"bucket-{os.urandom(4).hex()}")


def test_the_environment_leads_the_client_here(cloud: Cloud, client: Any, bucket: Any) -> None:
    assert client.project == "orch-test"
    assert bucket.exists()
    assert not client.bucket("nowhere-at-all").exists()
    assert bucket.name in [one.name for one in client.list_buckets()]
    with pytest.raises(exceptions.Conflict):
        client.create_bucket(bucket.name)
    assert cloud.calls("storage.buckets.insert")


@pytest.mark.parametrize("data", [b"", b"line\r\nline\n--not-a-boundary--\r\n", os.urandom(1 << 20)])
def test_what_is_uploaded_is_what_is_downloaded(bucket: Any, data: bytes) -> None:
    blob = bucket.blob("folder/a name with spaces & %2F/ü")
    blob.metadata = {"sha256": "x"}
    blob.upload_from_string(data, content_type="text/plain")
    again = bucket.get_blob(blob.name)
    assert (again.size, again.content_type, again.metadata) == (len(data), "text/plain", {"sha256": "x"})
    assert again.download_as_bytes() == data
    assert again.download_as_bytes(start=2, end=4) == data[2:5] if len(data) > 5 else True


def test_one_of_many_racers_wins(cloud: Cloud, bucket: Any) -> None:
    outcomes: list[tuple[int, bool]] = []
    start = threading.Barrier(RACERS)

    def race(number: int) -> None:
        own = storage.Client(
            project="orch-test",
            credentials=AnonymousCredentials(),
            client_options={"api_endpoint": cloud.url},
        )
        blob = own.bucket(bucket.name).blob("lock")
        start.wait()
        try:
            blob.upload_from_string(str(number), if_generation_match=0)
            outcomes.append((number, True))
        except exceptions.PreconditionFailed:
            outcomes.append((number, False))

    threads = [threading.Thread(target=race, args=(number,)) for number in range(RACERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [number for number, won in outcomes if won]
    assert len(outcomes) == RACERS
    assert len(winners) == 1
    assert bucket.blob("lock").download_as_text() == str(winners[0])


def test_generations_grow_and_are_demanded(bucket: Any) -> None:
    blob = bucket.blob("state")
    seen: list[int] = []
    for text in ("one", "two", "three"):
        blob.upload_from_string(text, if_generation_match=seen[-1] if seen else 0)
        seen.append(blob.generation)
    assert seen == sorted(set(seen))
    with pytest.raises(exceptions.PreconditionFailed):
        bucket.blob("state").upload_from_string("four", if_generation_match=seen[0])
    with pytest.raises(exceptions.PreconditionFailed):
        bucket.blob("state").delete(if_generation_match=seen[1])
    with pytest.raises(exceptions.PreconditionFailed):
        bucket.blob("state").download_as_bytes(if_generation_match=seen[1])
    with pytest.raises(exceptions.PreconditionFailed):
        bucket.blob("absent").upload_from_string("x", if_generation_match=seen[0])
    assert bucket.blob("state").download_as_text() == "three"
    bucket.blob("state").delete(if_generation_match=seen[-1])
    with pytest.raises(exceptions.NotFound):
        bucket.blob("state").delete()
    with pytest.raises(exceptions.NotFound):
        bucket.blob("state").download_as_bytes()


def test_the_unchanged_is_not_sent_again(bucket: Any) -> None:
    blob = bucket.blob("same")
    blob.upload_from_string("text")
    with pytest.raises(exceptions.NotModified):
        bucket.blob("same").reload(if_generation_not_match=blob.generation)
    assert bucket.blob("same").download_as_text(if_generation_not_match=7) == "text"


def test_metageneration_is_demanded(bucket: Any) -> None:
    blob = bucket.blob("marked")
    blob.upload_from_string("x")
    assert blob.metageneration == 1
    blob.metadata = {"a": "b"}
    blob.patch(if_metageneration_match=1)
    assert (blob.metageneration, blob.metadata) == (2, {"a": "b"})
    with pytest.raises(exceptions.PreconditionFailed):
        blob.patch(if_metageneration_match=1)


@pytest.mark.parametrize(("field", "reason"), [("md5_hash", "MD5"), ("crc32c", "CRC32C")])
def test_a_wrong_checksum_is_refused(bucket: Any, field: str, reason: str) -> None:
    blob = bucket.blob("wrong")
    setattr(blob, field, base64.b64encode(b"0" * (16 if field == "md5_hash" else 4)).decode())
    with pytest.raises(exceptions.BadRequest, match=reason):
        blob.upload_from_string(b"right", checksum=None)
    assert not bucket.blob("wrong").exists()


def test_a_corrupt_download_is_found_out(cloud: Cloud, bucket: Any) -> None:
    from google.cloud.storage.exceptions import DataCorruption

    bucket.blob("data").upload_from_string(b"precious" * 100)
    cloud.faults({"method": "storage.objects.get", "kind": "corrupt", "times": 9})
    with pytest.raises(DataCorruption):
        bucket.blob("data").download_as_bytes()
    cloud.clear_faults()
    assert bucket.blob("data").download_as_bytes() == b"precious" * 100


def test_a_download_that_is_cut_is_finished(cloud: Cloud, bucket: Any) -> None:
    data = os.urandom(1 << 20)
    bucket.blob("long").upload_from_string(data)
    cloud.faults({"method": "storage.objects.get", "zone": bucket.name, "kind": "cut"})
    assert bucket.blob("long").download_as_bytes() == data
    assert not cloud.state()["faults"]
    assert [call["status"] for call in cloud.calls("storage.objects.get")][-1] == 206


@pytest.mark.parametrize("strike", [0, 1, 3])
def test_a_resumable_upload_survives_a_cut(cloud: Cloud, bucket: Any, strike: int) -> None:
    data = os.urandom(LARGE)
    cloud.faults({"method": "storage.objects.insert", "zone": bucket.name, "kind": "cut", "after": strike})
    blob = bucket.blob("large", chunk_size=2 << 20)
    blob.upload_from_string(data, if_generation_match=0)
    assert not cloud.state()["faults"]
    assert bucket.blob("large").download_as_bytes() == data


@pytest.mark.parametrize("kind", ["unavailable", "too_many", "reset"])
def test_a_write_under_a_condition_is_tried_again(cloud: Cloud, bucket: Any, kind: str) -> None:
    cloud.faults({"method": "storage.objects.insert", "kind": kind})
    bucket.blob("once").upload_from_string("mine", if_generation_match=0)
    assert bucket.blob("once").download_as_text() == "mine"


def test_a_lost_answer_makes_a_winner_believe_it_lost(cloud: Cloud, bucket: Any) -> None:
    """Why a lock must read what is there and compare it with its own mark."""
    cloud.faults({"method": "storage.objects.insert", "kind": "reset", "after_effect": True})
    with pytest.raises(exceptions.PreconditionFailed):
        bucket.blob("lock").upload_from_string("my mark", if_generation_match=0)
    assert bucket.blob("lock").download_as_text() == "my mark"


def test_lists_are_paged_by_prefix_and_folder(cloud: Cloud, client: Any, bucket: Any) -> None:
    for name in ("a/1", "a/2", "a/b/3", "c", "d"):
        bucket.blob(name).upload_from_string(name)
    assert [one.name for one in client.list_blobs(bucket, page_size=2)] == ["a/1", "a/2", "a/b/3", "c", "d"]
    assert len([call for call in cloud.calls("storage.objects.list") if call["zone"] == bucket.name]) == 3
    listing = client.list_blobs(bucket, prefix="a/", delimiter="/")
    assert [one.name for one in listing] == ["a/1", "a/2"]
    assert listing.prefixes == {"a/b/"}
    with pytest.raises(exceptions.Conflict):
        bucket.delete()


def test_a_versioned_bucket_keeps_what_was_replaced(client: Any) -> None:
    versioned = client.bucket(f"versioned-{os.urandom(4).hex()}")
    versioned.versioning_enabled = True
    client.create_bucket(versioned)
    blob = versioned.blob("kept")
    blob.upload_from_string("old")
    old = blob.generation
    blob.upload_from_string("new")
    versioned.blob("kept").delete()
    assert not versioned.blob("kept").exists()
    assert [one.generation for one in client.list_blobs(versioned, versions=True)] == [old, blob.generation]
    assert versioned.blob("kept", generation=old).download_as_text() == "old"


def test_permissions_of_a_bucket_are_told(cloud: Cloud, bucket: Any) -> None:
    asked = ["storage.objects.create", "storage.objects.get"]
    assert bucket.test_iam_permissions(asked) == asked
    cloud.settings(denied=["storage.objects.create"])
    assert bucket.test_iam_permissions(asked) == ["storage.objects.get"]
    cloud.settings(denied=[])
