"""Links and grants: what a machine may do with them, and what it may not, as the clouds judge signatures."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from orchestrator.model.stores import Grant, Link
from orchestrator.storage import Store, open_store
from tests.clouds.signing import service_account
from tests.clouds.test_store_faults import Ground

OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
WEEK_S = 7 * 86400


@pytest.fixture(params=["s3", "gs"])
def ground(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Ground]:
    cloud = request.getfixturevalue("shared_aws" if request.param == "s3" else "shared_google")
    for name, value in cloud.env.items():
        monkeypatch.setenv(name, value)
    name = f"bucket-{os.urandom(6).hex()}"
    if request.param == "s3":
        cloud.client("s3").create_bucket(Bucket=name)
    else:
        from google.cloud import storage

        storage.Client().create_bucket(name)
        account, public = service_account()
        (tmp_path / "account.json").write_text(json.dumps(account))
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "account.json"))
        cloud.settings(signers={account["client_email"]: public})
    yield Ground(request.param, cloud, f"{request.param}://{name}/p")
    ahead(cloud, 0)


def ahead(cloud: Any, seconds: float) -> None:
    set_ = getattr(cloud, "set", None) or cloud.settings
    set_(clock_ahead_s=seconds)


def answer(request: urllib.request.Request) -> tuple[int, bytes]:
    try:
        with OPENER.open(request, timeout=30) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def follow(link: Link) -> tuple[int, bytes]:
    return answer(urllib.request.Request(link.url, headers=dict(link.headers)))


def upload(grant: Grant, name: str, content: bytes, **fields: str) -> tuple[int, bytes]:
    form = {**grant.fields, "key": name, **fields}
    mark = os.urandom(12).hex()
    parts = [
        f'--{mark}\r\nContent-Disposition: form-data; name="{field}"\r\n\r\n{text}\r\n'.encode()
        for field, text in form.items()
    ]
    file = f'--{mark}\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n'.encode()
    body = b"".join(parts) + file + content + f"\r\n--{mark}--\r\n".encode()
    head = {"Content-Type": f"multipart/form-data; boundary={mark}"}
    return answer(urllib.request.Request(grant.url, body, head, method="POST"))


def granted(store: Store, prefix: str = "runs/r/", lasts: float = 600) -> Grant:
    grant = store.grant(prefix, lasts)
    assert grant is not None
    return grant


def linked(store: Store, key: str, lasts: float = 600, version: str | None = None) -> Link:
    link = store.link(key, lasts, version)
    assert link is not None
    return link


def test_a_link_gets_one_object_without_credentials(ground: Ground) -> None:
    store = ground.store
    key = "folder/a name & ü+%2F"
    stored = store.put(key, b"content")
    store.put("other", b"secret")
    link = linked(store, key)
    assert follow(link) == (200, b"content")
    assert follow(linked(store, key, version=stored.version)) == (200, b"content")
    other = replace(link, url=link.url.replace("folder/a%20name%20%26%20%C3%BC%2B%252F", "other"))
    assert other.url != link.url
    assert follow(other)[0] == 403


def test_a_link_to_a_version_gets_no_other(ground: Ground) -> None:
    store = ground.store
    link = linked(store, "a", version=store.put("a", b"old").version)
    assert follow(link) == (200, b"old")
    store.put("a", b"new")
    assert follow(link)[0] in (404, 412)


def test_a_link_ends_when_it_says(ground: Ground) -> None:
    store = ground.store
    store.put("a", b"x")
    link = linked(store, "a", 600)
    left = (link.expires - datetime.now(UTC)).total_seconds()
    assert 500 < left <= 600
    ahead(ground.cloud, 700)
    assert follow(link)[0] in (400, 403)
    longer = replace(link, url=link.url.replace("Expires=600", "Expires=6000"))
    assert longer.url != link.url
    assert follow(longer)[0] == 403
    week = linked(store, "a", 10 * WEEK_S)
    assert (week.expires - datetime.now(UTC)).total_seconds() <= WEEK_S


def test_a_grant_uploads_under_its_prefix_alone(ground: Ground) -> None:
    store = ground.store
    grant = granted(store)
    assert grant.prefix == "p/runs/r/"
    assert "key" not in grant.fields
    assert upload(grant, "p/runs/r/out/log", b"line\r\n\r\nline\n")[0] in (200, 201, 204)
    assert store.get("runs/r/out/log") == b"line\r\n\r\nline\n"
    for name in ("p/runs/s/log", "runs/r/log", "p/runs/r", ""):
        assert upload(grant, name, b"x")[0] in (400, 403), name
    assert upload(grant, "p/runs/r/x", b"x", acl="public-read")[0] in (400, 403)
    assert [stored.key for stored in store.list()] == ["runs/r/out/log"]


def test_a_grant_ends_and_cannot_be_changed(ground: Ground) -> None:
    store = ground.store
    grant, other = granted(store), granted(store, "")
    assert (
        upload(replace(grant, fields={**grant.fields, "policy": other.fields["policy"]}), "p/x", b"x")[0]
        == 403
    )
    ahead(ground.cloud, 700)
    assert upload(grant, "p/runs/r/late", b"x")[0] in (400, 403)
    assert list(store.list()) == []


def test_without_a_key_to_sign_with_there_is_neither(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    if ground.kind != "gs":
        pytest.skip("S3's credentials always sign")
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS")
    store = open_store(ground.url)
    assert store.link("a", 60) is None
    assert store.grant("", 60) is None
