"""The machine's HTTP: cuts, refusals, wrong bytes, limits, forms; with a server that misbehaves."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from orchestrator.runtime.http import Client, File, HttpError

CONTENT = bytes(range(256)) * 4000


class Server(ThreadingHTTPServer):
    """Answers GET with ranges of CONTENT; `faults` are used up, one a request."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.faults: list[Callable[[Handler], None]] = []
        self.requests: list[tuple[str, str, bytes]] = []
        self.connections: set[object] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/object?secret=s3cret"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.requests.append((self.command, self.headers.get("Range", ""), body))
        self.server.connections.add(self.client_address)
        if self.server.faults:
            self.server.faults.pop(0)(self)
        elif self.command == "GET":
            first, last = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
            part(self, first, last, CONTENT[first : last + 1])
        else:
            reply(self, 204)

    do_PUT = do_POST = do_GET

    def log_message(self, *_: object) -> None:
        pass


def part(to: Handler, first: int, last: int, content: bytes, sent: int | None = None) -> None:
    to.send_response(206)
    to.send_header("Content-Range", f"bytes {first}-{last}/{len(CONTENT)}")
    to.send_header("Content-Length", str(len(content)))
    to.end_headers()
    to.wfile.write(content[:sent])
    if sent is not None:
        to.close_connection = True


def reply(to: Handler, status: int, body: bytes = b"", **headers: str) -> None:
    to.send_response(status)
    for name, value in headers.items():
        to.send_header(name.replace("_", "-"), value)
    to.send_header("Content-Length", str(len(body)))
    to.end_headers()
    to.wfile.write(body)


def cut_after(count: int) -> Callable[[Handler], None]:
    def fault(to: Handler) -> None:
        first, last = map(int, to.headers["Range"].removeprefix("bytes=").split("-"))
        part(to, first, last, CONTENT[first : last + 1], sent=count)

    return fault


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True).start()
        yield made
        made.shutdown()


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def client(pauses: list[float]) -> Iterator[Client]:
    with Client(timeout=10.0, attempts=3, pause=pauses.append) as made:
        yield made


def test_a_cut_goes_on_where_it_ended(server: Server, client: Client) -> None:
    server.faults = [cut_after(1000), cut_after(0), cut_after(5000), cut_after(0)]
    assert b"".join(client.read_range(server.url, {}, 7, 100_000)) == CONTENT[7:100_007]
    asked = [row[1] for row in server.requests]
    assert asked[0] == "bytes=7-100006"
    assert asked[1:3] == ["bytes=1007-100006"] * 2
    assert asked[3:5] == ["bytes=6007-100006"] * 2


def test_a_connection_serves_many_requests(server: Server, client: Client) -> None:
    for number in range(5):
        assert b"".join(client.read_range(server.url, {}, number, 10)) == CONTENT[number : number + 10]
    assert len(server.connections) == 1


def test_a_busy_server_is_asked_again_as_late_as_it_says(
    server: Server, client: Client, pauses: list[float]
) -> None:
    server.faults = [
        lambda to: reply(to, 503, Retry_After="9"),
        lambda to: reply(to, 429, Retry_After="99999"),
    ]
    assert b"".join(client.read_range(server.url, {}, 0, 5)) == CONTENT[:5]
    assert pauses == [9.0, 20.0]


def test_what_never_passes_is_given_up_without_the_link_in_its_words(server: Server, client: Client) -> None:
    server.faults = [lambda to: reply(to, 500)] * 3
    with pytest.raises(HttpError) as caught:
        list(client.read_range(server.url, {}, 0, 5))
    assert caught.value.kind == "passing"
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (403, "denied"),
        (401, "denied"),
        (404, "missing"),
        (412, "changed"),
        (416, "changed"),
        (302, "refused"),
    ],
)
def test_refusals_are_told_apart_and_not_repeated(
    server: Server, client: Client, status: int, kind: str
) -> None:
    server.faults = [lambda to: reply(to, status, b"<Error/>", Location="http://127.0.0.1:9/stolen")]
    with pytest.raises(HttpError) as caught:
        list(client.read_range(server.url, {}, 0, 5))
    assert (caught.value.kind, caught.value.status, len(server.requests)) == (kind, status, 1)


@pytest.mark.parametrize(
    "fault",
    [
        lambda to: part(to, 3, 7, CONTENT[3:8]),
        lambda to: reply(to, 206, CONTENT[:5]),
        lambda to: reply(to, 206, CONTENT[:5], Content_Range="bytes x-y/z"),
        lambda to: reply(to, 200, CONTENT[:50]),
    ],
    ids=["another range", "no range", "nonsense", "more than the whole"],
)
def test_other_bytes_than_asked_for_are_refused(
    server: Server, client: Client, fault: Callable[[Handler], None]
) -> None:
    server.faults = [fault]
    with pytest.raises(HttpError) as caught:
        list(client.read_range(server.url, {}, 0, 5))
    assert caught.value.kind == "malformed"


def test_an_endless_answer_has_a_limit(server: Server, client: Client) -> None:
    server.faults = [lambda to: reply(to, 200, b"x" * 5000)]
    with pytest.raises(HttpError) as caught:
        client.get(server.url, {}, most=1000)
    assert caught.value.kind == "malformed"


def test_a_put_is_repeated_whole(server: Server, client: Client, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(CONTENT)
    server.faults = [lambda to: reply(to, 503)]
    assert client.put(server.url, {}, File(str(tmp_path / "f"), len(CONTENT))).status == 204
    assert [row[2] for row in server.requests] == [CONTENT, CONTENT]


def test_a_form_carries_its_fields_before_the_file(server: Server, client: Client, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"\r\ncontent\x00")
    client.post_form(server.url, {"key": "a/b", "policy": "p"}, File(str(tmp_path / "f"), 10))
    ((_, _, body),) = server.requests
    head, _, rest = body.partition(b'filename="file"')
    assert head.index(b'name="key"\r\n\r\na/b\r\n') < head.index(b'name="policy"\r\n\r\np\r\n')
    assert b"\r\n\r\n\r\ncontent\x00\r\n--orch-" in rest


def test_a_file_that_became_shorter_is_not_sent_as_if_whole(
    server: Server, client: Client, tmp_path: Path
) -> None:
    (tmp_path / "f").write_bytes(b"short")
    with pytest.raises(HttpError) as caught:
        client.put(server.url, {}, File(str(tmp_path / "f"), 500))
    assert caught.value.kind == "malformed"


@pytest.mark.parametrize("url", ["ftp://x/y", "http:///y", "http://u:p@x/y", "file:///etc/passwd"])
def test_only_addresses_of_http_are_used(client: Client, url: str) -> None:
    with pytest.raises(HttpError) as caught:
        client.get(url, {})
    assert caught.value.kind == "malformed"
