"""Read text values from a program's own configuration file: YAML, JSON or TOML. Tags build no objects."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from typing import Any

import yaml
from yaml import events

SUFFIXES = (".yaml", ".yml", ".json", ".toml")
MOST_VALUES = 10_000
_DEEPEST = 100


class Unreadable(Exception):
    """The text does not have the format that the file's name says."""


def text_values(name: str, raw: bytes) -> list[tuple[str, str]]:
    """Return (key, text) of each text value in `raw`, the content of a file named `name`. Values in a list
    have the list's key.
    """
    found: list[tuple[str, str]] = []
    try:
        text = raw.decode("utf-8-sig")
        values = _of_yaml(text) if name.endswith((".yaml", ".yml")) else _walk(_document(name, text), "", 0)
        for pair in values:
            found.append(pair)
            if len(found) == MOST_VALUES:
                break
    except (ValueError, OverflowError, RecursionError, yaml.YAMLError) as error:
        raise Unreadable(str(error)) from None
    return found


def _document(name: str, text: str) -> Any:
    return tomllib.loads(text) if name.endswith(".toml") else json.loads(text)


def _walk(value: Any, key: str, depth: int) -> Iterator[tuple[str, str]]:
    if depth > _DEEPEST:
        return
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _walk(item, name, depth + 1)
    elif isinstance(value, list):
        for item in value:
            yield from _walk(item, key, depth + 1)


class _Level:
    """A list or mapping in a YAML document. `key`: the list's own, or that of the mapping's next value."""

    def __init__(self, key: str, *, is_mapping: bool) -> None:
        self.key = key
        self.is_mapping = is_mapping
        self.awaits_key = is_mapping


def _of_yaml(text: str) -> Iterator[tuple[str, str]]:
    """Read the parser's events, which neither build objects nor expand aliases."""
    levels = [_Level("", is_mapping=False)]
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        top = levels[-1]
        if isinstance(event, events.CollectionStartEvent):
            levels.append(_Level(top.key, is_mapping=isinstance(event, events.MappingStartEvent)))
        elif isinstance(event, events.CollectionEndEvent):
            levels.pop()
            _ended(levels[-1], "")
        elif isinstance(event, events.ScalarEvent):
            if not top.awaits_key:
                yield top.key, event.value
            _ended(top, event.value)
        elif isinstance(event, events.AliasEvent):
            _ended(top, "")


def _ended(level: _Level, text: str) -> None:
    """Handle the end of a key or value of `level`."""
    if level.is_mapping:
        level.key = text if level.awaits_key else ""
        level.awaits_key = not level.awaits_key
