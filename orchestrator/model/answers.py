"""Decode answers of the other side into typed values: strict JSON within limits, checked against a dataclass.

Nothing that a machine sends is trusted. `decoded` is the only way from its bytes to a value: what it returns
has the types, ranges and sizes that the annotations of `shape` state; all else is Malformed.
"""

from __future__ import annotations

import json
import math
import re
import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

from orchestrator.errors import MalformedAnswer
from orchestrator.model.counted import counted

from .plain import plain

T = TypeVar("T")

SHORT = 1 << 20
"""Bytes of the answer of a verb that lists nothing."""

LONG = 1 << 27
"""Bytes of the answer of a verb that lists files."""

_VALUES_PER_BYTE = 8
_FEW_VALUES = 100_000
_WORD = 4096
_MANY = 10_000
_WIDEST_INT = 1 << 63
_SETTING_BITS = 256
_SETTING_DEPTH = 24
_SETTING_VALUES = 20_000

Decode = Callable[[Any], Any]


class Malformed(ValueError):
    """An answer that its verb never gives. The text says where and what, without control characters."""


@dataclass(frozen=True)
class Between:
    """The smallest and the largest value of a number."""

    low: float
    high: float


@dataclass(frozen=True)
class Most:
    """The largest number of characters of a text, elements of a list, or keys of an object."""

    count: int


@dataclass(frozen=True)
class Like:
    """A regular expression that the whole text must match."""

    pattern: str


@dataclass(frozen=True)
class Setting:
    """For Any: JSON of any shape, such as a framework's settings, of limited depth and size."""

    depth: int = _SETTING_DEPTH
    values: int = _SETTING_VALUES


Settings = Annotated[Any, Setting()]

Count = Annotated[int, Between(0, _WIDEST_INT - 1)]
"""Bytes, files: a whole number that is not negative."""

Moment = Annotated[float, Between(0, 1 << 34)]
"""Unix seconds, or a duration in seconds."""

Sha256 = Annotated[str, Like("[0-9a-f]{64}")]


def decoded(shape: type[T], data: bytes, *, most: int = SHORT) -> T:
    """Decode the JSON text `data`, of at most `most` bytes, to a value of type `shape`. Raises Malformed.

    Keys that `shape` does not have are ignored; missing keys have its defaults.
    """
    return value(shape, parsed(data, most=most))


def malformed(name: str, what: str, why: str) -> MalformedAnswer:
    """Return the error for an answer of machine `name` to `what` that must not be used."""
    return MalformedAnswer(
        f"{name} answered {what} with something that orch's runtime never sends: {plain(why)}. The "
        "answer was not used.",
        exists=f"{name} may still be running and cost money. It, or orch's runtime on it, was changed.",
        next_command="orch status    # then orch down, which works without the machine's answer",
    )


def value(shape: type[T], found: Any) -> T:
    """Check JSON that was parsed already against `shape`, and return the value. Raises Malformed."""
    result: T = _decoder(shape)(found)
    return result


def parsed(data: bytes, *, most: int = SHORT, constants: bool = False) -> Any:
    """Parse strict JSON: UTF-8, no duplicate keys, no NaN, at most `most` bytes, a limited number of values.

    With `constants`, NaN and Infinity become the texts of these names: no numbers, but equal to themselves.
    """
    if len(data) > most:
        raise Malformed(f"it has {len(data):,} bytes, more than the {most:,} that are allowed")
    values = data.count(b",") + data.count(b"[") + data.count(b"{")
    if values > max(_FEW_VALUES, most // _VALUES_PER_BYTE):
        raise Malformed(f"it has {values:,} values, too many")
    try:
        hook = str if constants else _no_number
        return json.loads(data.decode("utf-8"), object_pairs_hook=_object, parse_constant=hook)
    except Malformed:
        raise
    except RecursionError:
        raise Malformed("it is nested too deeply") from None
    except ValueError as error:
        raise Malformed(f"it is not JSON ({plain(str(error))[:100]})") from None


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Malformed("it has a duplicate key")
    return found


def _no_number(name: str) -> Any:
    raise Malformed(f"it contains {name}")


# ---------------------------------------------------------------- decoders, one for each kind of annotation


def _decoder(shape: Any) -> Decode:
    return _made(shape)


@cache
def _made(shape: Any) -> Decode:
    origin, arguments = get_origin(shape), get_args(shape)
    if origin is Annotated:
        setting = next((limit for limit in arguments[1:] if isinstance(limit, Setting)), None)
        return _setting(setting) if setting else _limited(arguments[0], arguments[1:])
    if origin in (Union, types.UnionType):
        return _optional(arguments)
    if origin is Literal:
        return _one_of(arguments, lambda found: arguments[arguments.index(found)])
    if origin in (tuple, list, Mapping, dict):
        return _limited(shape, ())
    if is_dataclass(shape):
        return _record(shape)
    if isinstance(shape, type) and issubclass(shape, StrEnum):
        return _one_of(tuple(shape), shape)
    if is_typeddict(shape):
        return _keys(shape)
    if shape is Any:
        return lambda found: found
    return _limited(shape, ())


def _limited(shape: Any, limits: Sequence[Any]) -> Decode:
    """Return the decoder of a plain type or a container, with the annotated limits."""
    most = next((limit.count for limit in limits if isinstance(limit, Most)), None)
    if shape in (int, float):
        between = next((limit for limit in limits if isinstance(limit, Between)), None)
        return _number(shape, between or Between(-_WIDEST_INT, _WIDEST_INT))
    if shape is str:
        return _text(
            most or _WORD, next((limit.pattern for limit in limits if isinstance(limit, Like)), None)
        )
    if shape in (bool, type(None)):
        return _exactly(shape)
    origin, arguments = get_origin(shape), get_args(shape)
    if origin is list:
        elements = _list(_decoder(arguments[0]), most or _MANY)
        return lambda found: list(elements(found))
    if origin is tuple and arguments[-1] is ...:
        return _list(_decoder(arguments[0]), most or _MANY)
    if origin is tuple:
        return _row([_decoder(argument) for argument in arguments])
    if origin in (Mapping, dict):
        return _mapping(_decoder(arguments[0]), _decoder(arguments[1]), most or _MANY)
    raise TypeError(f"no decoder for {shape}")


def _number(shape: type, between: Between) -> Decode:
    low, high, whole = between.low, between.high, shape is int

    def decode(found: Any) -> Any:
        kind = type(found)
        if kind is not int and (whole or kind is not float or not math.isfinite(found)):
            raise Malformed(f"is {shown(found)}, not a {'whole ' if whole else ''}number")
        if not low <= found <= high:
            raise Malformed(f"is {shown(found)}, out of range")
        return found

    return decode


def _text(most: int, pattern: str | None) -> Decode:
    like = re.compile(pattern) if pattern is not None else None

    def decode(found: Any) -> Any:
        if type(found) is not str:
            raise Malformed(f"is {shown(found)}, not a string")
        if len(found) > most:
            raise Malformed(f"is a string of {len(found):,} characters, more than {most:,}")
        if not found.isascii():
            try:
                found.encode("utf-8", "surrogateescape")
            except UnicodeEncodeError:
                raise Malformed("is a string that cannot be encoded as bytes") from None
        if like is not None and not like.fullmatch(found):
            raise Malformed(f"is {shown(found)}, which is not a valid value")
        return found

    return decode


def _exactly(shape: type) -> Decode:
    def decode(found: Any) -> Any:
        if type(found) is not shape:
            raise Malformed(f"is {shown(found)}, not {'true or false' if shape is bool else 'null'}")
        return found

    return decode


def _one_of(words: Sequence[Any], read: Decode) -> Decode:
    """Return the decoder of a text that `read` converts. For other texts, `read` raises ValueError."""

    def decode(found: Any) -> Any:
        if type(found) is str:
            with suppress(ValueError):
                return read(found)
        raise Malformed(f"is {shown(found)}, not one of {', '.join(words)}")

    return decode


def _optional(arguments: Sequence[Any]) -> Decode:
    inner = [_decoder(argument) for argument in arguments if argument is not type(None)]
    if len(inner) != 1 or len(inner) == len(arguments):
        raise TypeError(f"no decoder for a union of {arguments}")
    decode = inner[0]
    return lambda found: None if found is None else decode(found)


def _list(decode: Decode, most: int) -> Decode:
    def all_of(found: Any) -> Any:
        if type(found) is not list:
            raise Malformed(f"is {shown(found)}, not a list")
        if len(found) > most:
            raise Malformed(f"has {counted(len(found), 'element')}, more than {most:,}")
        place = 0
        try:
            result = []
            for place, each in enumerate(found):  # noqa: B007
                result.append(decode(each))
            return tuple(result)
        except Malformed as error:
            raise _at(f"[{place}]", error) from None

    return all_of


def _row(decoders: Sequence[Decode]) -> Decode:
    def row(found: Any) -> Any:
        if type(found) is not list or len(found) != len(decoders):
            raise Malformed(f"is {shown(found)}, not a list of {len(decoders)}")
        return tuple(decode(each) for decode, each in zip(decoders, found, strict=True))

    return row


def _mapping(key: Decode, decode: Decode, most: int) -> Decode:
    def mapping(found: Any) -> Any:
        if type(found) is not dict:
            raise Malformed(f"is {shown(found)}, not an object")
        if len(found) > most:
            raise Malformed(f"has {counted(len(found), 'key')}, more than {most:,}")
        try:
            return {key(name): decode(each) for name, each in found.items()}
        except Malformed as error:
            raise _at("{…}", error) from None

    return mapping


def _record(shape: Any) -> Decode:
    hints = get_type_hints(shape, include_extras=True)
    parts = tuple(
        (
            field.name,
            _decoder(hints[field.name]),
            field.default is MISSING and field.default_factory is MISSING,
        )
        for field in fields(shape)
    )

    def record(found: Any) -> Any:
        if type(found) is not dict:
            raise Malformed(f"is {shown(found)}, not an object")
        known, name = {}, ""
        try:
            for name, decode, needed in parts:
                if name in found:
                    known[name] = decode(found[name])
                elif needed:
                    raise Malformed("is missing")
        except Malformed as error:
            raise _at(f".{name}", error) from None
        return shape(**known)

    return record


def _keys(shape: Any) -> Decode:
    """Return the decoder of a TypedDict. Keys that it does not have are left out."""
    parts = {name: _decoder(hint) for name, hint in get_type_hints(shape, include_extras=True).items()}
    needed = shape.__required_keys__

    def keys(found: Any) -> Any:
        if type(found) is not dict:
            raise Malformed(f"is {shown(found)}, not an object")
        known, name = {}, ""
        try:
            for name, decode in parts.items():
                if name in found:
                    known[name] = decode(found[name])
                elif name in needed:
                    raise Malformed("is missing")
        except Malformed as error:
            raise _at(f".{name}", error) from None
        return known

    return keys


def _setting(limits: Setting) -> Decode:
    text, number = _text(_WORD, None), _number(float, Between(-math.inf, math.inf))

    def leaf(found: Any) -> None:
        if isinstance(found, str):
            text(found)
        elif type(found) is int and found.bit_length() > _SETTING_BITS:
            raise Malformed(f"is {shown(found)}, out of range")
        elif type(found) is float:
            number(found)

    def setting(found: Any) -> Any:
        layer, values = [found], 0
        for _ in range(limits.depth):
            values += len(layer)
            if values > limits.values:
                raise Malformed(f"holds more than {limits.values:,} values")
            below: list[Any] = []
            for each in layer:
                if isinstance(each, dict):
                    below += [*each, *each.values()]
                elif isinstance(each, list):
                    below += each
                else:
                    leaf(each)
            layer = below
            if not layer:
                return found
        raise Malformed("is nested too deeply")

    return setting


def _at(place: str, error: Malformed) -> Malformed:
    text = str(error)
    return Malformed(f"{place}{'' if text.startswith(('.', '[', '{')) else ' '}{text}")


def shown(found: Any, most: int = 60) -> str:
    """Return a value of an answer, shortened and without control characters, for a message."""
    if isinstance(found, dict | list):
        return "an object" if isinstance(found, dict) else f"a list of {len(found):,}"
    if isinstance(found, int) and not isinstance(found, bool) and found.bit_length() > 200:
        return f"a number of {found.bit_length():,} bits"
    text = plain(repr(found[: most + 1] if isinstance(found, str) else found))
    return text if len(text) <= most else text[: most - 1] + "…"
