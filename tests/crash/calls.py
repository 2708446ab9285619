"""The calls of a cloud's API as effects: announced before they can take effect, and when they are answered.

boto3 and Google's library both speak by http.client. When an answer has come, the cloud has done what it was
asked. A call that only asks counts once until something changes: a verb may ask the same for a minute.
"""

from __future__ import annotations

import re
import sys
from http.client import HTTPConnection
from typing import Any

from tests.crash.points import EFFECT

_REQUEST = re.compile(rb"(GET|HEAD|POST|PUT|PATCH|DELETE) (\S+) HTTP/")
_BODY_FOLLOWS = re.compile(rb"\r\nContent-Length: *[1-9][0-9]*\r\n(?:.+\r\n)*\r\n\Z", re.IGNORECASE)
_ACTION = re.compile(rb"(?:^|[&\n])Action=(\w+)|X-Amz-Target: *\w+\.(\w+)")
_ASKS = ("Describe", "Get", "List", "GET ", "HEAD ")


def announce() -> None:
    """From now on every request of this process, and of its forks, is an effect."""
    asked: set[str] = set()
    begun: dict[int, bytes] = {}
    send, get_response = HTTPConnection.send, HTTPConnection.getresponse

    def say(call: str, what: str) -> None:
        shown = f"{call}: {what}"
        if not call.startswith(_ASKS):
            asked.clear()
        if shown not in asked:
            asked.add(shown)
            sys.audit(EFFECT, shown)

    def sent(connection: HTTPConnection, data: Any) -> None:
        """The last of a request is announced before it is sent: without it the cloud does nothing."""
        if isinstance(data, bytes):
            new = _REQUEST.match(data) is not None
            begun[id(connection)] = (b"" if new else begun.get(id(connection), b"")) + data
            if not (new and _BODY_FOLLOWS.search(data)):
                say(_named(begun[id(connection)]), "asked")
        send(connection, data)

    def answered(connection: HTTPConnection, *arguments: Any, **named: Any) -> Any:
        response = get_response(connection, *arguments, **named)
        say(_named(begun.get(id(connection), b"")), "answered")
        return response

    HTTPConnection.send = sent  # type: ignore[method-assign,assignment]
    HTTPConnection.getresponse = answered  # type: ignore[method-assign,assignment]


def _named(sent: bytes) -> str:
    """RunInstances, or DELETE instances/NAME."""
    if action := _ACTION.search(sent):
        return (action[1] or action[2]).decode()
    request = _REQUEST.match(sent)
    if request is None:
        return "a call"
    path = request[2].partition(b"?")[0].decode(errors="replace")
    return f"{request[1].decode()} {'/'.join(path.split('/')[-2:])}"
