"""Buckets that lie or break: listings, bodies and regions, by servers that do what no honest one does."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit
from xml.sax.saxutils import escape

import pytest

from orchestrator.errors import StorageFault
from orchestrator.model.backoff import Backoff
from orchestrator.storage import Corrupt, StorageDenied, StorageError, StorageUnreachable, bucket, open_store

CONTENT = os.urandom(3 << 20)
ETAG = hashlib.md5(CONTENT).hexdigest()
Answer = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def serving(answer: Answer) -> Iterator[str]:
    """An endpoint that answers every GET so, and every HEAD with the object's facts."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_HEAD(self) -> None:
            send(self, 200, {"Content-Length": str(len(CONTENT)), "ETag": f'"{ETAG}"'})

        def do_GET(self) -> None:
            answer(self)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def send(to: BaseHTTPRequestHandler, status: int, headers: dict[str, str], body: bytes = b"") -> None:
    to.send_response(status)
    for name, text in headers.items():
        to.send_header(name, text)
    to.end_headers()
    to.wfile.write(body)


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {
        "AWS_ACCESS_KEY_ID": "k",
        "AWS_SECRET_ACCESS_KEY": "s",
        "AWS_REGION": "us-east-1",
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, text)
    monkeypatch.setattr(bucket, "BACKOFF", Backoff(base_s=0.01, cap_s=0.02))


def listing(keys: list[tuple[str, int]], token: str = "") -> bytes:
    rows = "".join(
        f"<Contents><Key>{escape(quote(key, safe='/', errors='surrogatepass'))}</Key><Size>{size}</Size>"
        f"<ETag>&quot;{ETAG}&quot;</ETag></Contents>"
        for key, size in keys
    )
    more = f"<NextContinuationToken>{token}</NextContinuationToken>" if token else ""
    return (
        '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><EncodingType>url</EncodingType>'
        f"<IsTruncated>{'true' if token else 'false'}</IsTruncated>{more}{rows}</ListBucketResult>"
    ).encode()


def as_list(body: bytes) -> Answer:
    return lambda to: send(
        to, 200, {"Content-Type": "application/xml", "Content-Length": str(len(body))}, body
    )


@pytest.mark.parametrize(
    "name",
    ["../up", "/etc/passwd", "a//b", "a/../b", "nul\0", "line\n", "esc\x1b[2J", ".orch-store/x", "x" * 1100],
)
def test_a_hostile_name_in_a_listing_is_named_and_not_used(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with serving(as_list(listing([(f"p/{name}", 1)]))) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
        with pytest.raises(StorageError) as refused:
            list(open_store("s3://bucket/p").list())
    assert refused.value.fault is StorageFault.KEY
    assert refused.value.message.isprintable()
    assert len(refused.value.message) < 300


@pytest.mark.parametrize(
    ("keys", "token"),
    [
        ([("other/x", 1)], ""),
        ([("p/b", 1), ("p/a", 1)], ""),
        ([("p/a", 1), ("p/a", 1)], ""),
        ([("p/a", -1)], ""),
        ([("p/a", 1)], "again"),
        ([], "again"),
    ],
)
def test_a_listing_that_no_store_gives_is_refused(
    monkeypatch: pytest.MonkeyPatch, keys: list[tuple[str, int]], token: str
) -> None:
    with serving(as_list(listing(keys, token))) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
        with pytest.raises(StorageError) as refused:
            list(open_store("s3://bucket/p").list())
    assert refused.value.fault is StorageFault.UNKNOWN


def test_folders_of_consoles_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(as_list(listing([("p/", 0), ("p/a/", 0), ("p/a/b", 1)]))) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
        assert [stored.key for stored in open_store("s3://bucket/p").list()] == ["a/b"]


def test_many_thousand_keys_are_listed_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    pages: list[int] = []

    def answer(to: BaseHTTPRequestHandler) -> None:
        query = parse_qs(urlsplit(to.path).query)
        start = int(query.get("continuation-token", ["0"])[0])
        pages.append(start)
        last = start + 1000 >= 20_000
        body = listing(
            [(f"p/{number:06d}", number) for number in range(start, start + 1000)],
            "" if last else str(start + 1000),
        )
        as_list(body)(to)

    with serving(answer) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
        found = open_store("s3://bucket/p").list()
        first = next(found)
        assert (first.key, pages) == ("000000", [0]), "a page is asked for when it is needed"
        assert sum(1 for _ in found) == 19_999
    assert len(pages) == 20


def facts(size: int = len(CONTENT)) -> dict[str, str]:
    return {"Content-Length": str(size), "ETag": f'"{ETAG}"', "Content-Type": "binary/octet-stream"}


def test_a_download_that_is_cut_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[str] = []

    def answer(to: BaseHTTPRequestHandler) -> None:
        span = to.headers.get("Range", "")
        asked.append(span)
        start = int(span.removeprefix("bytes=").rstrip("-")) if span else 0
        rest = CONTENT[start:]
        head = facts(len(rest))
        if span:
            head["Content-Range"] = f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}"
        send(to, 206 if span else 200, head, rest if len(asked) == 3 else rest[: 1 << 20])
        to.close_connection = True

    with serving(answer) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
        open_store("s3://bucket/p").fetch("a", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == CONTENT
    assert len(asked) == 3
    assert asked[0] == ""
    assert all(span.startswith("bytes=") for span in asked[1:])


def flipped() -> bytes:
    at = len(CONTENT) // 2
    return CONTENT[:at] + bytes([CONTENT[at] ^ 1]) + CONTENT[at + 1 :]


@pytest.mark.parametrize("times", [1, 99])
def test_a_flipped_byte_on_the_way_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, times: int
) -> None:
    """Once: the second copy is right. Always: refused, and nothing is left of it."""
    asked: list[int] = []

    def answer(to: BaseHTTPRequestHandler) -> None:
        asked.append(1)
        send(to, 200, facts(), flipped() if len(asked) <= times else CONTENT)

    for number, call in enumerate((lambda s: s.get("a"), lambda s: s.fetch("a", tmp_path / "copy"))):
        asked.clear()
        with serving(answer) as url:
            monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
            store = open_store("s3://bucket/p")
            if times == 1:
                call(store)
            else:
                with pytest.raises(Corrupt):
                    call(store)
        assert len(asked) == 2, number
    assert (tmp_path / "copy").exists() is (times == 1)
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".part")]


@pytest.mark.parametrize("large", [False, True])
def test_a_body_without_end_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, large: bool) -> None:
    monkeypatch.setattr(bucket, "LARGEST_GET", 4 << 20)

    def answer(to: BaseHTTPRequestHandler) -> None:
        to.send_response(200)
        to.send_header("ETag", f'"{ETAG}"')
        to.send_header("Transfer-Encoding", "chunked")
        to.end_headers()
        chunk = b"x" * 65536
        try:
            while True:
                to.wfile.write(b"10000\r\n" + chunk + b"\r\n")
        except OSError:
            to.close_connection = True

    with serving(answer) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
        store = open_store("s3://bucket/p")
        with pytest.raises(StorageError) as refused:
            store.fetch("a", tmp_path / "copy") if large else store.get("a")
    assert refused.value.fault in (StorageFault.CORRUPT, StorageFault.TOO_LARGE)
    assert list(tmp_path.iterdir()) == []


def test_a_page_that_is_no_answer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    page = b"<html><body>Log in to this network</body></html>"
    with serving(
        lambda to: send(to, 200, {"Content-Type": "text/html", "Content-Length": str(len(page))}, page)
    ) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
        with pytest.raises(StorageError):
            open_store("s3://bucket/p").get("a")


def test_nobody_there_and_no_credentials_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(as_list(b"")) as url:
        pass
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
    with pytest.raises(StorageUnreachable) as silent:
        open_store("s3://bucket/p").get("a")
    assert silent.value.fault is StorageFault.UNREACHABLE
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    with pytest.raises(StorageDenied) as refused:
        open_store("s3://bucket/p").get("a")
    assert refused.value.fault is StorageFault.AUTH


def test_a_bucket_of_another_region_is_asked_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scope of each signature names a region; S3 answers 301 with x-amz-bucket-region to a wrong one."""
    regions: list[str] = []

    class Elsewhere(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            region = self.headers["Authorization"].split("/")[2]
            regions.append(region)
            head = {"x-amz-bucket-region": "eu-west-3"}
            if region != "eu-west-3":
                send(self, 301, {**head, "Content-Length": "0"})
            else:
                size = str(len(CONTENT))
                body = b"" if self.command == "HEAD" else CONTENT
                send(self, 200, {**head, "Content-Length": size, "ETag": f'"{ETAG}"'}, body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{server.server_port}")
        store = open_store("s3://bucket/p")
        assert store.get("a") == CONTENT
        link = store.link("a", 60)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert regions[-1] == "eu-west-3"
    assert link is not None
    assert "eu-west-3" in link.url


def test_a_link_lasts_no_longer_than_the_credentials_that_sign_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of a session's credentials, as SSO and roles give them: the link dies with their token."""
    ends = datetime.now(UTC) + timedelta(minutes=30)
    told = {"Version": 1, "AccessKeyId": "k", "SecretAccessKey": "s", "SessionToken": "t"}
    (tmp_path / "told.py").write_text(f"print({json.dumps({**told, 'Expiration': ends.isoformat()})!r})")
    (tmp_path / "config").write_text(
        f"[default]\ncredential_process = {sys.executable} {tmp_path / 'told.py'}\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    with serving(as_list(b"")) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
        link = open_store("s3://bucket/p").link("a", 86400)
        grant = open_store("s3://bucket/p").grant("", 86400)
    assert link is not None
    assert grant is not None
    for expires in (link.expires, grant.expires):
        assert ends - timedelta(minutes=2) < expires <= ends + timedelta(seconds=1)
    assert grant.fields["x-amz-security-token"] == "t"


def as_json(status: int, value: object) -> Answer:
    body = json.dumps(value).encode()
    head = {"Content-Type": "application/json", "Content-Length": str(len(body))}
    return lambda to: send(to, status, head, body)


def test_a_bucket_whose_requester_pays_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """cloud.google.com/storage/docs/requester-pays: 400 without a project to bill, reason "required"."""
    reason = {"message": "Bucket is a requester pays bucket", "domain": "global", "reason": "required"}
    with serving(as_json(400, {"error": {"code": 400, "message": "…", "errors": [reason]}})) as url:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
        store = open_store("gs://bucket/p")
        for call in (lambda: store.get("a"), lambda: list(store.list())):
            with pytest.raises(StorageError) as refused:
                call()
            assert refused.value.fault is StorageFault.REQUESTER_PAYS


@pytest.mark.parametrize("name", ["p/../up", "p//a", "p/nul\0", "elsewhere"])
def test_a_hostile_listing_of_cloud_storage_is_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    item = {"name": name, "size": "1", "generation": "1", "crc32c": "AAAAAA=="}
    with serving(as_json(200, {"kind": "storage#objects", "items": [item]})) as url:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
        with pytest.raises(StorageError) as refused:
            list(open_store("gs://bucket/p").list())
    assert refused.value.fault in (StorageFault.KEY, StorageFault.UNKNOWN)
    assert refused.value.message.isprintable()


@pytest.mark.parametrize("item", [{"name": "p/a"}, {"name": "p/a", "size": "x", "generation": "1"}, {}])
def test_an_answer_without_its_fields_is_an_error(
    monkeypatch: pytest.MonkeyPatch, item: dict[str, str]
) -> None:
    with serving(as_json(200, {"kind": "storage#objects", "items": [item]})) as url:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
        with pytest.raises(StorageError):
            list(open_store("gs://bucket/p").list())


def test_what_a_killed_download_left_is_removed_by_the_next(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for left in (".copy.999999999.abc.part", f".copy.{os.getpid()}.abc.part", ".other.999999999.abc.part"):
        (tmp_path / left).write_text("part")
    with serving(lambda to: send(to, 200, facts(), CONTENT)) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
        open_store("s3://bucket/p").fetch("a", tmp_path / "copy")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f".copy.{os.getpid()}.abc.part",
        ".other.999999999.abc.part",
        "copy",
    ]
