"""Build HTML safely: every text is escaped, unless it is an element that was built here."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping

from orchestrator.model.plain import plain

Attributes = Mapping[str, str | int | float | bool | None]

_VOID = frozenset(("br", "hr", "img", "link", "meta"))


class Markup(str):
    """Text that is HTML already. Only `el` and `joined` create it."""

    __slots__ = ()


def el(name: str, attributes: Attributes | None = None, *children: str) -> Markup:
    """Return an element. A child that is not Markup is escaped as text; attributes that are None or False
    are left out.
    """
    told = "".join(_attribute(key, value) for key, value in (attributes or {}).items())
    if name in _VOID:
        return Markup(f"<{name}{told}>")
    return Markup(f"<{name}{told}>{joined(children)}</{name}>")


def joined(children: Iterable[str]) -> Markup:
    """Concatenate children."""
    return Markup("".join(child if isinstance(child, Markup) else escaped(child) for child in children))


def escaped(text: str) -> str:
    """Escape any text for HTML, and remove control characters."""
    return html.escape(plain(text), quote=True)


def raw(text: str) -> Markup:
    """Insert a style sheet or script of orch without escaping."""
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
