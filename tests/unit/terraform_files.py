"""terraform's files as data, and what is wrong with them: by their form, and by the providers' schemas."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import hcl2

from tests.conftest import ROOT

TERRAFORM = ROOT / "terraform"
CLOUDS = ("aws", "gcp")

_META = {"for_each", "count", "depends_on", "provider", "lifecycle"}
_REFERENCE = re.compile(
    r"(?<![\w.\"/])(data\.)?((?:aws|google)_\w+)\.(\w+)((?:\[(?:[^\[\]]|\[[^\[\]]*\])*\])?)(?:\.(\w+))?"
)
_NAMED = re.compile(r"(?<![\w.])(var|local)\.(\w+)")
_COMMENT = re.compile(r"^\s*#.*$", re.MULTILINE)

Body = dict[str, Any]


@dataclass(frozen=True)
class Block:
    """A resource or data block: `type` and `name` are its labels."""

    kind: str
    type: str
    name: str
    body: Body

    @property
    def address(self) -> str:
        return f"{'data.' if self.kind == 'data' else ''}{self.type}.{self.name}"


@functools.cache
def parsed(text: str) -> dict[str, Any]:
    """A file as python-hcl2 has it. Not to be changed: it is kept, for parsing is slow."""
    return hcl2.loads(text)


def sources(cloud: str) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted((TERRAFORM / cloud).glob("*.tf"))}


def schema(cloud: str) -> dict[str, Any]:
    """As scripts/terraform_schema.py distilled it."""
    found: dict[str, Any] = json.loads((TERRAFORM / "schema" / f"{cloud}.json").read_text())
    return found


def top(texts: Mapping[str, str], kind: str) -> dict[str, Any]:
    """The blocks of a kind that have one label (variable, output), by it; locals by their own names."""
    found: dict[str, Any] = {}
    for text in texts.values():
        for block in parsed(text).get(kind, ()):
            found |= {_plain(key): value for key, value in block.items() if not key.startswith("__")}
    return found


def blocks(texts: Mapping[str, str]) -> list[Block]:
    return [
        Block(kind, _plain(type_), _plain(name), body)
        for text in texts.values()
        for kind in ("resource", "data")
        for block in parsed(text).get(kind, ())
        for type_, named in block.items()
        if not type_.startswith("__")
        for name, body in named.items()
        if not name.startswith("__")
    ]


def literal(value: Any) -> Any:
    """A value without the quotes of its strings; an expression stays as it is written: "${…}"."""
    if isinstance(value, str):
        return _plain(value)
    if isinstance(value, list):
        return [literal(one) for one in value]
    if isinstance(value, dict):
        return {_plain(key): literal(one) for key, one in value.items() if not key.startswith("__")}
    return value


def _plain(text: str) -> str:
    quoted = len(text) > 1 and text[0] == text[-1] == '"'
    return text[1:-1].replace('\\"', '"') if quoted else text


# ---------------------------------------------------------------- by the providers' schemas


def problems(texts: Mapping[str, str], known: Mapping[str, Any]) -> list[str]:
    """Everything that `terraform validate` would say, as far as types' schemas and names tell it."""
    found = blocks(texts)
    said = [f"{one.address}: {what}" for one in found for what in _of_block(one, known)]
    for one in (provider for text in texts.values() for provider in parsed(text).get("provider", ())):
        for name, body in one.items():
            said += [f"provider {name}: {what}" for what in _body(body, known["configuration"], "")]
    return said + list(_references(texts, found, known)) + list(_names(texts))


def _of_block(block: Block, known: Mapping[str, Any]) -> Iterator[str]:
    if block.type not in known[block.kind]:
        yield "no schema was distilled for this type"
        return
    body = {key: value for key, value in block.body.items() if key not in _META}
    yield from _body(body, known[block.kind][block.type], "")


def _body(body: Body, known: Mapping[str, Any], at: str) -> Iterator[str]:
    nested = dict(_nested(body))
    for key, value in body.items():
        if key.startswith("__") or key == "dynamic" or key in nested:
            continue
        if key in known["arguments"]:
            yield from _typed(f"{at}{key}", value, known["arguments"][key])
        else:
            yield f"{at}{key} is no argument"
    for key, bodies in nested.items():
        if key not in known["blocks"]:
            yield f"{at}{key} is no block"
            continue
        if len(bodies) > 1 and not known["blocks"][key]["many"]:
            yield f"{at}{key} may stand once"
        for one in bodies:
            yield from _body(one, known["blocks"][key], f"{at}{key}.")
    missing = set(known["required"]) - body.keys() - nested.keys()
    yield from (f"{at}{name} is missing" for name in sorted(missing))


def _nested(body: Body) -> Iterator[tuple[str, list[Body]]]:
    """Blocks in a body, those that `dynamic` makes too, by what they are called."""
    for key, value in body.items():
        if key == "dynamic":
            for one in value:
                yield from ((_plain(name), made["content"]) for name, made in one.items() if name[0] == '"')
        elif isinstance(value, list) and value and all(_is_block(one) for one in value):
            yield key, value


def _is_block(value: Any) -> bool:
    return isinstance(value, dict) and value.get("__is_block__") is True


def _typed(name: str, value: Any, kind: str) -> Iterator[str]:
    """A literal of another type; what an expression yields is not known here."""
    if isinstance(value, str) and not value.startswith('"'):
        return
    if isinstance(value, str) and "${" in value:
        fits = kind in ("string", "any")
    else:
        fits = _fits(literal(value), kind)
    if not fits:
        yield f"{name} = {literal(value)!r} is no {kind}"


def _fits(value: Any, kind: str) -> bool:
    if kind in ("any", "object"):
        return True
    if kind.startswith(("list(", "set(")):
        inner = kind.partition("(")[2][:-1]
        return isinstance(value, list) and all(_fits(one, inner) or _expression(one) for one in value)
    if kind.startswith("map("):
        inner = kind.partition("(")[2][:-1]
        return isinstance(value, dict) and all(
            _fits(one, inner) or _expression(one) for one in value.values()
        )
    if kind == "bool":
        return isinstance(value, bool) or value in ("true", "false")
    if kind == "number":
        return not isinstance(value, bool) and re.fullmatch(r"-?\d+(\.\d+)?", str(value)) is not None
    return isinstance(value, str | int | float | bool)


def _expression(value: Any) -> bool:
    return isinstance(value, str) and "${" in value


def _references(texts: Mapping[str, str], found: list[Block], known: Mapping[str, Any]) -> Iterator[str]:
    there = {one.address: one for one in found}
    for file, text in texts.items():
        for data, type_, name, _, attribute in _REFERENCE.findall(_COMMENT.sub("", text)):
            address = f"{data}{type_}.{name}"
            if address not in there:
                yield f"{file}: {address} is nowhere"
                continue
            type_schema = known[there[address].kind].get(type_)
            if attribute and type_schema and not _has(type_schema, attribute):
                yield f"{file}: {address} has no {attribute}"


def _has(known: Mapping[str, Any], attribute: str) -> bool:
    return any(attribute in known[part] for part in ("arguments", "blocks", "computed"))


def _names(texts: Mapping[str, str]) -> Iterator[str]:
    """Variables and locals that are used and not there, or there and not used."""
    text = _COMMENT.sub("", "\n".join(texts.values()))
    used = set(_NAMED.findall(text))
    there = {("var", name) for name in top(texts, "variable")} | {("local", n) for n in top(texts, "locals")}
    yield from (f"{kind}.{name} is nowhere" for kind, name in sorted(used - there))
    yield from (f"{kind}.{name} is not used" for kind, name in sorted(there - used))


# ---------------------------------------------------------------- by their form


def unformatted(text: str) -> list[str]:
    """Where `terraform fmt` would change a file: indentation, blanks, and the `=` of neighbouring lines."""
    said = [] if text.endswith("\n") and not text.endswith("\n\n") else ["the end is not one line's end"]
    depth, group = 0, []
    for number, line in enumerate([*text.splitlines(), ""], 1):
        bare = _bare(line)
        opened, closed = len(re.findall(r"[\[({]", bare)), len(re.findall(r"[\])}]", bare))
        outdent = len(re.match(r"\s*([\])}]*)", bare)[1])  # type: ignore[index]
        if line.strip() and line != "  " * max(0, depth - bool(outdent)) + line.strip():
            said.append(f"line {number}: its indentation, or blanks at its end")
        depth += _steps(opened, closed)
        place = re.match(r"\s*[\w\"-]+ *(?==[^=>])", bare)
        if place and opened == closed:
            group.append((number, line.index("=", place.end() - 1), _aligned(line)))
            continue
        said += _misaligned(group)
        group = []
    return said


def _steps(opened: int, closed: int) -> int:
    """Brackets that open on one line are one step of indentation, as are those that close."""
    return (opened > closed) - (closed > opened)


def _bare(line: str) -> str:
    """A line without what its strings and its comment hold."""
    return re.sub(
        r"\s#.*|^#.*", "", re.sub(r'"(?:\\.|[^"\\])*"', lambda s: '"' + "_" * (len(s[0]) - 2) + '"', line)
    )


def _aligned(line: str) -> int:
    """The least column that its `=` can have."""
    return len(line[: line.index("=")].rstrip()) + 1


def _misaligned(group: list[tuple[int, int, int]]) -> list[str]:
    column = max((least for _, _, least in group), default=0)
    return [f"line {number}: its = is not in line" for number, at, _ in group if at != column]
