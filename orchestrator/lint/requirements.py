"""Read lists of packages from any kind of file: name, extras and versions of each, with their line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from packaging.utils import canonicalize_name

from orchestrator.lint.source import Snippet

_LINE = re.compile(
    r"^(?P<name>[A-Za-z0-9][\w.-]*)\s*(?P<extras>\[[^\]]*\])?\s*(?P<spec>(?:(?:===?|~=|!=|<=?|>=?)\s*[^\s,;#]+\s*,?\s*)*)"
    r"(?P<rest>;.*|@.*|--hash.*|\\.*)?$"
)
_PACKAGE = re.compile(r'name\s*=\s*"([^"]+)"')
_VERSION = re.compile(r'version\s*=\s*"([^"]+)"')
_EXACT = re.compile(r"^={2,3}\s*[^*\s,]+$")
_VALUE_OPTIONS = frozenset(
    [
        "-r",
        "-c",
        "-i",
        "-f",
        "-t",
        "-e",
        "--requirement",
        "--constraint",
        "--index-url",
        "--extra-index-url",
        "--find-links",
        "--target",
        "--timeout",
        "--retries",
        "--trusted-host",
        "--prefix",
        "--platform",
        "--python-version",
        "--cache-dir",
        "--progress-bar",
        "--editable",
        "--python",
    ]
)
_INSTALL = re.compile(
    r"(?:^|[\s;&|(])(?:(?:python[\d.]*|py)\s+-m\s+|uv\s+|sudo\s+)*(?:pip[\d.]*)\s+install\s+(?P<rest>[^;&|>]*)"
)
_CONDA = re.compile(r"(?:^|[\s;&|(])(?:conda|mamba|micromamba)\s+install\s+(?P<rest>[^;&|>]*)")


@dataclass(frozen=True)
class Requirement:
    """One requested package, at a line (from 1) and column (from 0) of its snippet."""

    snippet: Snippet
    name: str
    extras: str
    spec: str
    line: int
    column: int
    upgraded: bool = False

    @property
    def exact(self) -> str | None:
        """Return the version if exactly one is allowed."""
        spec = self.spec.strip().rstrip(",")
        return spec.lstrip("= ") if _EXACT.match(spec) else None

    @property
    def written(self) -> str:
        return f"{self.name}{self.extras}{self.spec}".strip()


def requirements(snippet: Snippet) -> list[Requirement]:
    """Return the packages that a snippet names. URLs, paths and options are skipped."""
    reader = {
        "requirements": _of_lines,
        "conda": _of_conda,
        "pyproject": _of_pyproject,
        "shell": _of_commands,
        "docker": _of_commands,
    }.get(snippet.language)
    return list(reader(snippet)) if reader else []


def named(
    snippet: Snippet, line: int, column: int, text: str, *, upgraded: bool = False
) -> Iterator[Requirement]:
    """Return the package that one line of requirements names, if any."""
    plain = re.split(r"(?:^|\s)#", text, maxsplit=1)[0].rstrip()
    indent = len(plain) - len(plain.lstrip())
    found = _LINE.match(plain.strip())
    if found and not (found["rest"] or "").startswith("@"):
        extras, spec = found["extras"] or "", found["spec"] or ""
        yield Requirement(
            snippet, canonicalize_name(found["name"]), extras, spec.strip(), line, column + indent, upgraded
        )


def locked(snippet: Snippet) -> list[Requirement]:
    """Return the packages that a lock pins: hashed requirements, uv.lock or pylock.toml."""
    if not snippet.path.endswith(("uv.lock", ".toml")):
        return list(_of_lines(snippet))
    lines = snippet.code.split("\n")
    found = ((number, _PACKAGE.match(line)) for number, line in enumerate(lines, 1))
    return [
        Requirement(snippet, canonicalize_name(name[1]), "", f"=={version[1]}", number, name.start(1))
        for number, name in found
        if name and number < len(lines) and (version := _VERSION.match(lines[number]))
    ]


def _of_lines(snippet: Snippet) -> Iterator[Requirement]:
    for number, line in enumerate(snippet.code.split("\n"), 1):
        if line.strip() and not line.lstrip().startswith(("#", "-")):
            yield from named(snippet, number, 0, line)


def _of_conda(snippet: Snippet) -> Iterator[Requirement]:
    """Read `- name=1.2` under dependencies, and `- name==1.2` under pip."""
    inside = False
    for number, line in enumerate(snippet.code.split("\n"), 1):
        if re.match(r"^\w", line):
            inside = line.startswith("dependencies")
        item = re.match(r"^(\s*-\s+)([^#\s]*[^#\s:])\s*(#.*)?$", line) if inside else None
        if item:
            text = item[2].strip("\"'").rpartition("::")[2]
            text = re.sub(r"^([\w.-]+)=([\w.]+)(=[\w.]+)?$", r"\1==\2", text)
            yield from named(snippet, number, len(item[1]), text)


def _of_pyproject(snippet: Snippet) -> Iterator[Requirement]:
    try:
        value = tomllib.loads(snippet.code)
    except (tomllib.TOMLDecodeError, RecursionError):
        return
    lines = snippet.code.split("\n")
    for text in _listed(value):
        number = next((n for n, line in enumerate(lines, 1) if f'"{text}"' in line or f"'{text}'" in line), 1)
        yield from named(snippet, number, max(lines[number - 1].find(text), 0), text)
    for name, spec in _table(value, "tool", "poetry", "dependencies").items():
        wanted = spec.get("version") if isinstance(spec, dict) else spec
        number = next((n for n, line in enumerate(lines, 1) if re.match(rf"{re.escape(name)}\s*=", line)), 1)
        if isinstance(wanted, str):
            exact = re.fullmatch(r"(==)?\d+(\.\d+){2,}", wanted)
            written = f"{name}=={wanted.lstrip('=')}" if exact else name
            yield from named(snippet, number, 0, written)


def _listed(value: dict[str, Any]) -> Iterator[str]:
    """Return the packages of [project], its extras, and its dependency groups."""
    project = _table(value, "project")
    lists = [project.get("dependencies"), *_table(project, "optional-dependencies").values()]
    lists += _table(value, "dependency-groups").values()
    for listed in lists:
        yield from (text for text in listed if isinstance(text, str)) if isinstance(listed, list) else ()


def _table(value: dict[str, Any], *keys: str) -> dict[str, Any]:
    for key in keys:
        found = value.get(key)
        value = found if isinstance(found, dict) else {}
    return value


def _of_commands(snippet: Snippet) -> Iterator[Requirement]:
    for number, line in _logical(snippet.code):
        if line.lstrip().startswith("#"):
            continue
        for found in _INSTALL.finditer(line):
            yield from _of_arguments(snippet, number, line, found)
        for found in _CONDA.finditer(line):
            for each in _of_arguments(snippet, number, line, found):
                if re.fullmatch(r"[\w.-]+", each.name):
                    yield each


def _logical(code: str) -> Iterator[tuple[int, str]]:
    """Join lines that a backslash continues, at the number of the first."""
    begin, text = 0, ""
    for number, line in enumerate(code.split("\n"), 1):
        begin = begin or number
        text += line
        if text.endswith("\\"):
            text = text[:-1] + " "
            continue
        yield begin, text
        begin, text = 0, ""
    if text:
        yield begin, text


def _of_arguments(snippet: Snippet, number: int, line: str, found: re.Match[str]) -> Iterator[Requirement]:
    words = re.findall(r"\"[^\"]*\"|'[^']*'|[^\s\"']+", found["rest"].split(" #")[0])
    upgraded = any(word in ("-U", "--upgrade") for word in words)
    skip = False
    for word in words:
        if skip or word.startswith("-"):
            skip = not skip and word in _VALUE_OPTIONS
            continue
        plain = word.strip("\"'")
        if "/" in plain or plain.startswith((".", "$", "{")) or plain.endswith((".whl", ".gz", ".txt")):
            continue
        if found.re is _CONDA:
            plain = re.sub(r"^([\w.-]+)=([\w.]+)(=[\w.]+)?$", r"\1==\2", plain)
        yield from named(snippet, number, max(line.find(word), 0), plain, upgraded=upgraded)
