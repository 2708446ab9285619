"""What every list method understands: filter, paging, order, and partial answers by `fields`."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tests.clouds.gcp.errors import ApiError, Json

Test = Callable[[Json], bool]

_TOKEN = re.compile(
    r"""\s*(?:(?P<paren>[()])|(?P<op>!=|>=|<=|=|:|<|>)|(?P<text>"[^"]*"|'[^']*'|[^\s()=!<>:"']+))"""
)
_MOST = 500


def page(items: Sequence[Json], query: Mapping[str, str]) -> tuple[list[Json], str]:
    """One page of what passes the filter, and the token of the next page or ""."""
    test = parse_filter(query.get("filter", ""))
    fit = _ordered([item for item in items if test(item)], query.get("orderBy", ""))
    size = int(query.get("maxResults", _MOST)) or _MOST
    if size > _MOST:
        message = f"Invalid value for field 'maxResults': '{size}'. Must be at most {_MOST}."
        raise ApiError(400, "invalid", message)
    start = start_of(query.get("pageToken", ""))
    token = token_of(start + size) if start + size < len(fit) else ""
    return fit[start : start + size], token


def token_of(start: int) -> str:
    """The opaque token of the page that begins at item `start`."""
    return base64.urlsafe_b64encode(b"after:%d" % start).decode()


def start_of(token: str) -> int:
    """Where the page of a token begins; ApiError 400 for what is no token of ours."""
    if not token:
        return 0
    try:
        word, _, number = base64.urlsafe_b64decode(token).decode().partition(":")
        assert word == "after"
        return int(number)
    except (ValueError, AssertionError):
        message = f"Invalid value for field 'pageToken': '{token}'. The page token is not valid."
        raise ApiError(400, "invalid", message) from None


def _ordered(items: list[Json], order: str) -> list[Json]:
    if order in ("", "name"):
        return sorted(items, key=lambda item: str(item.get("name")))
    if order == "creationTimestamp desc":
        return sorted(items, key=lambda item: str(item.get("creationTimestamp")), reverse=True)
    raise ApiError(400, "invalid", f"Invalid value for field 'orderBy': '{order}'.")


# ------------------------------------------------------------ filters


def parse_filter(text: str) -> Test:
    """A test of resources out of a filter expression; ApiError 400 for what is none.

    Terms `field OP value` with =, !=, :, <, >, <=, >=, eq, ne; AND (or nothing) binds before OR as Google
    says; NOT and `-` negate; parentheses.
    """
    if not text.strip():
        return lambda _: True
    parser = _Parser(text)
    return parser.whole()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text, self._refuse)
        self._at = 0

    def whole(self) -> Test:
        test = self._either()
        if self._at < len(self._tokens):
            raise self._refuse()
        return test

    def _either(self) -> Test:
        tests = [self._both()]
        while self._peek() == "OR":
            self._next()
            tests.append(self._both())
        return lambda item: any(test(item) for test in tests)

    def _both(self) -> Test:
        tests = [self._one()]
        while self._peek() not in (None, ")", "OR"):
            if self._peek() == "AND":
                self._next()
            tests.append(self._one())
        return lambda item: all(test(item) for test in tests)

    def _one(self) -> Test:
        token = self._next()
        if token == "NOT":
            inner = self._one()
            return lambda item: not inner(item)
        if token == "(":
            inner = self._either()
            if self._next() != ")":
                raise self._refuse()
            return inner
        if token.startswith("-") and len(token) > 1:
            positive = self._term(token[1:])
            return lambda item: not positive(item)
        return self._term(token)

    def _term(self, field: str) -> Test:
        if not re.fullmatch(r"[A-Za-z][\w.\-]*", field):
            raise self._refuse()
        operator = self._next()
        if operator not in ("=", "!=", ":", "<", ">", "<=", ">=", "eq", "ne"):
            raise self._refuse()
        value = self._next()
        if value in ("(", ")", "AND", "OR"):
            raise self._refuse()
        if value[0] in "\"'":
            value = value[1:-1]
        return _comparison(field, operator, value)

    def _peek(self) -> str | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _next(self) -> str:
        if self._at >= len(self._tokens):
            raise self._refuse()
        self._at += 1
        return self._tokens[self._at - 1]

    def _refuse(self) -> ApiError:
        message = f"Invalid value for field 'filter': '{self._text}'. Invalid list filter expression."
        return ApiError(400, "invalid", message)


def _tokens(text: str, refuse: Callable[[], ApiError]) -> list[str]:
    found, at = [], 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise refuse()
        found.append(match.group(match.lastgroup or 0))
        at = match.end()
    return found


def _comparison(field: str, operator: str, value: str) -> Test:
    def test(item: Json) -> bool:
        has = _at(item, field)
        if operator == ":":
            return has is not None and (value == "*" or value.lower() in str(_text(has)).lower())
        if operator == "eq":
            return has is not None and re.fullmatch(value, _text(has)) is not None
        if operator == "ne":
            return has is None or re.fullmatch(value, _text(has)) is None
        if operator == "!=":
            return has is None or not _same(has, value)
        if operator == "=":
            return has is not None and _same(has, value)
        return has is not None and _less(has, operator, value)

    return test


def _same(has: object, value: str) -> bool:
    if "*" in value and isinstance(has, str):
        return re.fullmatch(".*".join(map(re.escape, value.split("*"))), has) is not None
    return _text(has) == value or _text(has).rpartition("/")[2] == value


def _less(has: object, operator: str, value: str) -> bool:
    one: Any = _text(has)
    other: Any = value
    if re.fullmatch(r"-?[\d.]+", one) and re.fullmatch(r"-?[\d.]+", other):
        one, other = float(one), float(other)
    return bool({"<": one < other, ">": one > other, "<=": one <= other, ">=": one >= other}[operator])


def _at(item: Any, field: str) -> Any:
    for name in field.split("."):
        item = item.get(name) if isinstance(item, dict) else None
    return item


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# ------------------------------------------------------------ partial answers


def select(value: Any, fields: str) -> Any:
    """What `fields` (items(id,name),nextPageToken or a/b/c) leaves of an answer."""
    tree, rest = _fields(fields, 0)
    if rest != len(fields):
        raise ApiError(400, "invalidParameter", f"Invalid field selection {fields}")
    return _selected(value, tree)


def _fields(text: str, at: int) -> tuple[dict[str, Any], int]:
    tree: dict[str, Any] = {}
    while True:
        match = re.compile(r"[\w*/.\-]+").match(text, at)
        if match is None:
            raise ApiError(400, "invalidParameter", f"Invalid field selection {text}")
        at = match.end()
        inner: dict[str, Any] = {}
        if text[at : at + 1] == "(":
            inner, at = _fields(text, at + 1)
            if text[at : at + 1] != ")":
                raise ApiError(400, "invalidParameter", f"Invalid field selection {text}")
            at += 1
        _merge(tree, match.group().split("/"), inner)
        if text[at : at + 1] != ",":
            return tree, at
        at += 1


def _merge(tree: dict[str, Any], path: Iterable[str], inner: dict[str, Any]) -> None:
    for name in path:
        tree = tree.setdefault(name, {})
    tree.update(inner)


def _selected(value: Any, tree: dict[str, Any]) -> Any:
    if not tree:
        return value
    if isinstance(value, list):
        return [_selected(item, tree) for item in value]
    if not isinstance(value, dict):
        return value
    everything = tree.get("*")
    return {
        name: _selected(item, tree.get(name, everything or {}))
        for name, item in value.items()
        if name in tree or everything is not None
    }
