"""The machine's HTTP client: it reads and writes objects over persistent connections.

Certificates are verified, proxies of the environment are not used, redirects are refused, and every answer
has a size limit. Transient failures (a cut, a timeout, 429, 5xx) are retried with growing pauses; a range
that was cut continues where it ended. Everything else is an HttpError that names its kind.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import random
import re
import secrets
import ssl
import time
import urllib.parse
from typing import Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple, Union

PIECE = 1 << 20
ANSWER = 1 << 16
"""Maximum bytes of an answer that is not an object: an acknowledgement, or an error's text."""
_PASSING = frozenset((408, 425, 429, 500, 502, 503, 504))
_LONGEST_PAUSE = 20.0
_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(?:\d{1,18}|\*)\Z")
_OK, _PARTIAL = 200, 206

Body = Union[bytes, "File"]


class File(NamedTuple):
    """A file whose first `size` bytes are a body."""

    path: str
    size: int


class Answer(NamedTuple):
    """An answer without an object. Header names are lower case."""

    status: int
    headers: Dict[str, str]
    body: bytes


class HttpError(Exception):
    """A request that failed finally.

    kind: "denied" (401, 403, ExpiredToken: the link expired, or was never allowed), "missing" (404, 410),
    "changed" (412; 416: it is shorter now), "passing" (a transient failure, retried often enough), "refused"
    (any other status), "malformed" (against the protocol).
    """

    def __init__(self, kind: str, sentence: str, status: int = 0) -> None:
        super().__init__(sentence)
        self.kind = kind
        self.status = status


class _Cut(Exception):
    """A transient failure: the reason, and how long the server asks to wait."""

    def __init__(self, reason: str, wait: float = 0.0, status: int = 0) -> None:
        super().__init__(reason)
        self.wait = wait
        self.status = status


class Client:
    """Requests of one thread. One connection is kept for each server."""

    def __init__(
        self,
        timeout: float = 60.0,
        attempts: int = 7,
        pause: Callable[[float], None] = time.sleep,
        context: Optional[ssl.SSLContext] = None,
    ) -> None:
        """`timeout`: seconds of silence. `attempts`: consecutive ones without a byte. `context`: TLS
        settings.
        """
        self._timeout = timeout
        self._attempts = attempts
        self._pause = pause
        self._context = context
        self._kept: Dict[Tuple[str, str], http.client.HTTPConnection] = {}

    def read_range(
        self, url: str, headers: Mapping[str, str], first: int, size: int, piece: int = PIECE
    ) -> Iterator[bytes]:
        """Yield the `size` bytes from `first` of the object at `url`, at most `piece` at a time. After a cut,
        continue where it ended.

        Raises HttpError; it is "malformed" if the server sends other bytes than those requested.
        """
        done, failures = 0, 0
        while done < size:
            try:
                for got in self._pieces(url, headers, first + done, size - done, piece):
                    done, failures = done + len(got), 0
                    yield got
            except _Cut as cut:
                failures += 1
                self._wait(url, cut, failures)

    def head(self, url: str, headers: Mapping[str, str]) -> Answer:
        """Return the headers of the object at `url`."""
        return self._answered("HEAD", url, headers, b"")

    def get(self, url: str, headers: Mapping[str, str], most: int = ANSWER) -> Answer:
        """Return a small answer, of at most `most` bytes."""
        return self._answered("GET", url, headers, b"", most)

    def put(self, url: str, headers: Mapping[str, str], body: Body) -> Answer:
        """Send the body to `url`; repeated from the beginning after a cut."""
        return self._answered("PUT", url, headers, body)

    def post(self, url: str, headers: Mapping[str, str], body: bytes, most: int = ANSWER) -> Answer:
        """Send a small body to `url`; repeated after a cut, so only for requests that may happen twice."""
        return self._answered("POST", url, headers, body, most)

    def post_form(self, url: str, fields: Mapping[str, str], body: Body) -> Answer:
        """Send a form (multipart/form-data) whose last field, `file`, is the body. Repeated after a cut."""
        boundary = f"orch-{secrets.token_hex(16)}"
        form = _Form(_form_head(boundary, fields), body, f"\r\n--{boundary}--\r\n".encode())
        headers = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
        return self._answered("POST", url, headers, form)

    def close(self) -> None:
        for connection in self._kept.values():
            connection.close()
        self._kept.clear()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------ one attempt

    def _pieces(
        self, url: str, headers: Mapping[str, str], first: int, size: int, most: int
    ) -> Iterator[bytes]:
        asked = {"Accept-Encoding": "gzip", **headers, "Range": f"bytes={first}-{first + size - 1}"}
        response, connection = self._send("GET", url, asked, b"")
        whole = False
        try:
            _require_range(response, first, size)
            left = size
            while left:
                piece = _read(response, min(most, left))
                if not piece:
                    raise _Cut("the answer ended early")
                left -= len(piece)
                yield piece
            whole = not _read(response, 1)
        finally:
            if not whole:  # what is left on this connection belongs to this answer
                connection.close()

    def _answered(
        self, method: str, url: str, headers: Mapping[str, str], body: _Sendable, most: int = ANSWER
    ) -> Answer:
        failures = 0
        while True:
            try:
                response, _ = self._send(method, url, headers, body)
                content = _read(response, most + 1)
                if len(content) > most:
                    raise HttpError("malformed", f"{_server(url)} sent more than {most:,} bytes.")
                return Answer(response.status, _lower(response), content)
            except _Cut as cut:
                self.close()
                failures += 1
                self._wait(url, cut, failures)
            except HttpError:
                self.close()
                raise

    def _send(
        self, method: str, url: str, headers: Mapping[str, str], body: _Sendable
    ) -> Tuple[http.client.HTTPResponse, http.client.HTTPConnection]:
        """Return a response with a good status. Raises _Cut for transient failures, else HttpError."""
        parts = urllib.parse.urlsplit(url)
        connection = self._connection(parts)
        target = urllib.parse.urlunsplit(("", "", parts.path or "/", parts.query, ""))
        try:
            connection.putrequest(method, target, skip_accept_encoding=True)
            for name, value in headers.items():
                connection.putheader(name, value)
            if method in ("PUT", "POST"):
                connection.putheader("Content-Length", str(_length(body)))
            connection.endheaders()
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it may have answered already
                for piece in _bytes_of(body):
                    connection.send(piece)
            response = connection.getresponse()
            _require_good(url, response)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            if isinstance(error, ssl.SSLCertVerificationError):
                raise HttpError("refused", f"The certificate of {_server(url)} is not valid.") from error
            raise _Cut(f"{type(error).__name__}: {error}"[:300]) from error
        except (_Cut, HttpError):
            connection.close()
            raise
        return response, connection

    def _connection(self, parts: urllib.parse.SplitResult) -> http.client.HTTPConnection:
        origin = (parts.scheme, parts.netloc)
        if origin not in self._kept:
            self._kept[origin] = self._new(parts)
        return self._kept[origin]

    def _new(self, parts: urllib.parse.SplitResult) -> http.client.HTTPConnection:
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
            raise HttpError("malformed", "A link is not an http or https address.")
        if parts.scheme == "http":
            return http.client.HTTPConnection(parts.hostname, parts.port, timeout=self._timeout)
        self._context = self._context or ssl.create_default_context()
        return http.client.HTTPSConnection(
            parts.hostname, parts.port, timeout=self._timeout, context=self._context
        )

    def _wait(self, url: str, cut: _Cut, failures: int) -> None:
        if failures >= self._attempts:
            reason = f"{_server(url)} could not be used, {failures} times in a row: {cut}."
            raise HttpError("passing", reason, cut.status) from cut
        grown = min(_LONGEST_PAUSE, 0.2 * 2**failures) * random.uniform(0.5, 1.0)
        self._pause(min(_LONGEST_PAUSE, max(cut.wait, grown)))


# ---------------------------------------------------------------- bodies


class _Form(NamedTuple):
    head: bytes
    body: Body
    tail: bytes


_Sendable = Union[bytes, File, _Form]


def _form_head(boundary: str, fields: Mapping[str, str]) -> bytes:
    lines: List[str] = []
    for name, value in fields.items():
        if re.search(r'["\r\n]', name):
            raise HttpError("malformed", "A field's name holds a quote or a line break.")
        lines += [f"--{boundary}", f'Content-Disposition: form-data; name="{name}"', "", value]
    lines += [f"--{boundary}", 'Content-Disposition: form-data; name="file"; filename="file"']
    lines += ["Content-Type: application/octet-stream", "", ""]
    return "\r\n".join(lines).encode()


def _length(body: _Sendable) -> int:
    if isinstance(body, _Form):
        return len(body.head) + _length(body.body) + len(body.tail)
    return body.size if isinstance(body, File) else len(body)


def _bytes_of(body: _Sendable) -> Iterator[bytes]:
    if isinstance(body, _Form):
        yield body.head
        yield from _bytes_of(body.body)
        yield body.tail
    elif isinstance(body, File):
        yield from _file(body)
    elif body:
        yield body


def _file(body: File) -> Iterator[bytes]:
    left = body.size
    with open(os.open(body.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), "rb") as file:
        while left:
            piece = file.read(min(PIECE, left))
            if not piece:
                raise HttpError("malformed", f"{body.path} became shorter while it was sent.")
            left -= len(piece)
            yield piece


# ---------------------------------------------------------------- answers


def _read(response: http.client.HTTPResponse, size: int) -> bytes:
    try:
        return response.read(size)
    except (OSError, http.client.HTTPException) as error:
        raise _Cut(f"{type(error).__name__}: {error}"[:300]) from error


def _require_good(url: str, response: http.client.HTTPResponse) -> None:
    status = response.status
    if _OK <= status < 300:
        return
    if status in _PASSING:
        raise _Cut(f"it answered {status}", _retry_after(response), status)
    if 300 <= status < 400:
        raise HttpError(
            "refused", f"{_server(url)} redirects ({status}), and redirects are not followed.", status
        )
    kinds = {401: "denied", 403: "denied", 404: "missing", 410: "missing", 416: "changed", 412: "changed"}
    said = _read(response, 600).decode("latin-1")
    if status == 400 and "<Code>ExpiredToken</Code>" in said:  # a link of Cloud Storage, a session of S3
        raise HttpError("denied", f"{_server(url)} answered ExpiredToken.", status)
    words = re.sub(r"[^\x20-\x7e]+", " ", said).strip()
    raise HttpError(
        kinds.get(status, "refused"), f"{_server(url)} answered {status}: {words or 'nothing'}", status
    )


def _require_range(response: http.client.HTTPResponse, first: int, size: int) -> None:
    if response.status == _PARTIAL:
        found = _CONTENT_RANGE.match(response.headers.get("Content-Range", ""))
        if found and (int(found.group(1)), int(found.group(2))) == (first, first + size - 1):
            return
    elif response.status == _OK and first == 0 and response.length in (None, size):
        return
    raise HttpError("malformed", "The server sent other bytes than the ones that were asked for.")


def _retry_after(response: http.client.HTTPResponse) -> float:
    value = response.headers.get("Retry-After", "")
    return float(value) if re.fullmatch(r"[0-9]{1,5}", value) else 0.0


def _lower(response: http.client.HTTPResponse) -> Dict[str, str]:
    return {name.lower(): value for name, value in response.headers.items()}


def _server(url: str) -> str:
    """Return the server of a link; the rest of a link is a secret."""
    return urllib.parse.urlsplit(url).hostname or "the server"
