"""HTML that cannot be forged: every text is escaped where it enters, unless it is an element itself."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping

from orchestrator.model.plain import plain

Attributes = Mapping[str, str | int | float | bool | None]

_VOID = frozenset(("br", "hr", "img", "link", "meta"))


class Markup(str):
    """Text that is HTML already. Made by `el` and `joined` alone."""

    __slots__ = ()


def el(name: str, attributes: Attributes | None = None, *children: str) -> Markup:
    """The element; a child that is no Markup is text. Attributes of None and False are left out."""
    told = "".join(_attribute(key, value) for key, value in (attributes or {}).items())
    if name in _VOID:
        return Markup(f"<{name}{told}>")
    return Markup(f"<{name}{told}>{joined(children)}</{name}>")


def joined(children: Iterable[str]) -> Markup:
    """Children after one another."""
    return Markup("".join(child if isinstance(child, Markup) else escaped(child) for child in children))


def escaped(text: str) -> str:
    """Text of anybody as the text of a page, without control characters."""
    return html.escape(plain(text), quote=True)


def raw(text: str) -> Markup:
    """A style sheet or program of our own, which goes in as it is."""
    if "</" in text:
        raise ValueError("an asset of the page holds the end of an element")
    return Markup(text)


def _attribute(key: str, value: str | int | float | bool | None) -> str:
    if value is None or value is False:
        return ""
    if value is True:
        return f" {key}"
    shown = f"{value:.6g}" if isinstance(value, float) else str(value)
    return f' {key}="{escaped(shown)}"'
