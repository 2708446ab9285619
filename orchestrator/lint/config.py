"""Which rules are selected: by the command line, the profile, or [tool.orch.lint] of pyproject.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from orchestrator.lint.rule import Rule


class Unknown(ValueError):
    """A setting names no rule, or has the wrong type. The message is for users."""


@dataclass(frozen=True)
class Config:
    """Which rules apply. `select` empty: all rules. Rules are given by id, name, or a prefix of ids: ORC1,
    ORC30.

    `strict`: errors stop `orch up` and `orch train`. `per_file`: glob of paths -> rules that do not apply
    there.
    """

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    per_file: Mapping[str, tuple[str, ...]] | None = None
    strict: bool = False

    def wants(self, rule: Rule, path: str) -> bool:
        chosen = not self.select or _named(rule, self.select)
        here = [
            each for glob, rules in (self.per_file or {}).items() if fnmatchcase(path, glob) for each in rules
        ]
        return chosen and not _named(rule, (*self.ignore, *here))


def _named(rule: Rule, words: Iterable[str]) -> bool:
    return any(word == rule.name or rule.id.startswith(word.upper()) for word in words if word)


def known(word: str, rules: Mapping[str, Rule]) -> bool:
    """Whether `word` names at least one rule."""
    return any(_named(rule, [word]) for rule in rules.values())


def checked(words: Iterable[str], rules: Mapping[str, Rule], where: str) -> tuple[str, ...]:
    """Return `words` unchanged if each names a rule. Raises Unknown."""
    listed = tuple(word for text in words for word in text.replace(",", " ").split())
    wrong = [word for word in listed if not known(word, rules)]
    if wrong:
        raise Unknown(f"{where}: there is no rule {wrong[0]!r}; docs/lint.md lists them.")
    return listed


def from_pyproject(text: str, rules: Mapping[str, Rule]) -> Config:
    """Return the table [tool.orch.lint] of a pyproject.toml; the default if there is none. Raises Unknown."""
    try:
        value: Any = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Unknown(f"pyproject.toml is not valid TOML: {error}") from None
    for key in ("tool", "orch", "lint"):
        value = value.get(key, {}) if isinstance(value, dict) else {}
    if not isinstance(value, dict) or not value:
        return Config()
    return from_table(value, rules, "[tool.orch.lint]")


def from_table(table: Mapping[str, Any], rules: Mapping[str, Rule], where: str) -> Config:
    """Return a Config from a mapping with the keys select, ignore, exclude, per-file-ignores, strict."""
    keys = {"select", "ignore", "exclude", "strict", "per-file-ignores"}
    wrong = sorted(set(table) - keys)
    if wrong:
        raise Unknown(f"{where}: there is no key {wrong[0]!r}; there are: {', '.join(sorted(keys))}.")
    per_file = table.get("per-file-ignores", {})
    if not isinstance(per_file, dict) or not isinstance(table.get("strict", False), bool):
        raise Unknown(
            f"{where}: per-file-ignores must be a table of paths and rules, and strict true or false."
        )
    return Config(
        select=checked(_words(table, "select", where), rules, where),
        ignore=checked(_words(table, "ignore", where), rules, where),
        exclude=_words(table, "exclude", where),
        per_file={glob: checked(_words(per_file, glob, where), rules, where) for glob in per_file},
        strict=table.get("strict", False),
    )


def _words(table: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    value = table.get(key, [])
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        raise Unknown(f"{where}: {key} must be a list of strings.")
    return tuple(value)
