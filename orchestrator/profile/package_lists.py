"""Read the packages of a conda environment.yml or a Pipfile as requirements."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from orchestrator.errors import UsageError
from orchestrator.profile.tree import ListNode, MapNode, Refused, ScalarNode, read_tree

_CONDA = re.compile(r"^(?P<name>[A-Za-z0-9][\w.-]*)\s*(?P<version>[=<>!~\d*].*)?$")
_BUILD = re.compile(r"^=?(?P<version>[\w.!+-]+)=(?P<build>[\w.*]+)$")
_RENAMED = {
    "pytorch": "torch",
    "matplotlib-base": "matplotlib",
    "pytables": "tables",
    "opencv": "opencv-python",
}
_PUBLIC_INDEX = "pypi.org"
_TOOLS = frozenset(("pip",))
_NO_PYTHON_PACKAGES = frozenset(
    ("cudatoolkit", "cudnn", "cpuonly", "pytorch-cuda", "cuda", "cuda-toolkit", "nccl", "blas", "nomkl")
)  # fmt: skip


@dataclass(frozen=True)
class Listed:
    """One requirement, as pip reads it. `line` counts from 1; 0 if it is not known."""

    line: int
    text: str


@dataclass(frozen=True)
class PackageList:
    """What a file asks for. `python`: specifiers, "" for any. `notes`: sentences for the user."""

    requirements: tuple[Listed, ...]
    python: str = ""
    notes: tuple[str, ...] = ()


def is_package_list(path: Path) -> bool:
    """Whether `path` is named as a conda environment or a Pipfile."""
    return path.name == "Pipfile" or path.suffix in {".yml", ".yaml"}


def read_package_list(path: Path) -> PackageList:
    """Return the packages of a conda environment or a Pipfile. Raise UsageError, with file:line where it is
    known, for what cannot be read.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error
    return _pipfile(raw, path) if path.name == "Pipfile" else _conda(raw, path)


# ---------------------------------------------------------------- conda


def _conda(raw: bytes, path: Path) -> PackageList:
    try:
        tree = read_tree(raw, str(path))
    except Refused as refused:
        raise UsageError(f"{refused}.") from None
    listed = tree.items.get("dependencies") if isinstance(tree, MapNode) else None
    if not isinstance(listed, ListNode):
        raise UsageError(f"{path} has no list of dependencies: it is not a conda environment.")
    found = [(node, *_conda_package(node, path)) for node in listed.items if isinstance(node, ScalarNode)]
    from_pip = [each for node in listed.items if isinstance(node, MapNode) for each in _of_pip(node, path)]
    left_out = sorted(name for _, name, _ in found if name in _NO_PYTHON_PACKAGES)
    taken = [
        Listed(node.place.line, f"{_RENAMED.get(name, name)}{version}")
        for node, name, version in found
        if name not in _NO_PYTHON_PACKAGES | _TOOLS | {"python"}
    ]
    renamed = sorted(f"{name} as {_RENAMED[name]}" for _, name, _ in found if name in _RENAMED)
    python = next((version for _, name, version in found if name == "python"), "")
    return PackageList((*taken, *from_pip), python, tuple(_conda_notes(bool(taken), renamed, left_out)))


def _conda_notes(taken: bool, renamed: list[str], left_out: list[str]) -> Iterator[str]:
    if taken:
        but = f" ({', '.join(renamed)})" if renamed else ""
        yield f"The conda packages were taken from the package index by the same names{but}, from no channel."
    if left_out:
        yield f"Left out, because the index has no such package: {', '.join(left_out)}."


def _conda_package(node: ScalarNode, path: Path) -> tuple[str, str]:
    """Return the name of a conda package, and the specifiers of its version."""
    matched = _CONDA.match(node.text.strip().rpartition("::")[2])
    version = _specifiers(matched["version"] or "") if matched else None
    if matched is None or version is None:
        raise UsageError(
            f"{path}:{node.place.line}: {node.text!r} is not a name, or a name and versions such as =1.2 or "
            ">=1.2,<2.",
            next_command="orch lock    # after the edit",
        )
    return matched["name"].lower(), version


def _specifiers(version: str) -> str | None:
    """Return conda's versions as pip's: =1.2 is ==1.2.*, =1.2=build is ==1.2; None if pip has none such."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    version = re.sub(r"\s+", "", version) if version[:1] in "=<>!~" else re.sub(r"\s+", "=", version.strip())
    exact = _BUILD.match(version)
    if version in {"", "*", "=*"}:
        return ""
    if exact and not version.startswith("=="):
        version = f"=={exact['version']}"
    elif version.startswith("=") and not version.startswith("=="):
        version = f"=={version[1:].removesuffix('*').removesuffix('.')}.*"
    elif version[0].isdigit():
        version = f"=={version}"
    try:
        return str(SpecifierSet(version))
    except InvalidSpecifier:
        return None


def _of_pip(node: MapNode, path: Path) -> Iterator[Listed]:
    listed = node.items.get("pip")
    for each in listed.items if isinstance(listed, ListNode) else ():
        if not isinstance(each, ScalarNode):
            raise UsageError(f"{path}:{each.place.line}: an entry of pip is not a requirement.")
        yield Listed(each.place.line, each.text)


# ---------------------------------------------------------------- Pipfile


def _pipfile(raw: bytes, path: Path) -> PackageList:
    try:
        text = raw.decode("utf-8-sig")
        document = tomllib.loads(text)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: {error}.") from None
    packages = _table(document, "packages")
    listed = tuple(
        Listed(_line_of(name, text), _entry(name, wanted, path)) for name, wanted in packages.items()
    )
    return PackageList(listed, _python_of(_table(document, "requires")), tuple(_source_notes(document)))


def _source_notes(document: Mapping[str, object]) -> Iterator[str]:
    sources = document.get("source")
    urls = (
        [str(each.get("url")) for each in sources if isinstance(each, dict)]
        if isinstance(sources, list)
        else []
    )
    if any(urlsplit(url).hostname != _PUBLIC_INDEX for url in urls):
        yield "Its [[source]] entries were not used, but the index that your uv or pip uses."


def _table(document: Mapping[str, object], name: str) -> dict[str, object]:
    found = document.get(name, {})
    return found if isinstance(found, dict) else {}


def _line_of(name: str, text: str) -> int:
    """Return the line that defines `name`, or its table [packages.NAME]; 0 if none is found."""
    form = re.compile(rf"""^\s*(\[\s*packages\s*\.\s*)?["']?{re.escape(name)}["']?\s*[=\]]""")
    inside = 0
    for number, line in enumerate(text.splitlines(), 1):
        inside = number if re.match(r"^\s*\[\s*packages\b", line) else 0 if line.startswith("[") else inside
        if inside and form.match(line):
            return number
    return 0


def _python_of(requires: Mapping[str, object]) -> str:
    full, short = requires.get("python_full_version"), requires.get("python_version")
    if full:
        return f"=={full}"
    return f"=={short}.*" if short else ""


def _entry(name: str, wanted: object, path: Path) -> str:
    """Return an entry of [packages] as a requirement."""
    if isinstance(wanted, str):
        return name + _version(wanted)
    if not isinstance(wanted, dict):
        raise UsageError(f"{path}: {name} is neither a version nor a table.")
    for key in ("path", "file"):
        if key in wanted:
            return _place(str(wanted[key]))
    if "git" in wanted:
        revision = f"@{wanted['ref']}" if "ref" in wanted else ""
        return f"{name} @ git+{wanted['git']}{revision}"
    extras = f"[{','.join(map(str, wanted['extras']))}]" if wanted.get("extras") else ""
    return f"{name}{extras}{_version(str(wanted.get('version', '*')))}{_marker(wanted)}"


def _place(text: str) -> str:
    return text if "://" in text or text.startswith((".", "/", "~")) else f"./{text}"


def _version(wanted: str) -> str:
    if wanted.strip() in {"", "*"}:
        return ""
    return f"=={wanted.strip()}" if wanted.strip()[0].isdigit() else wanted.strip()


def _marker(wanted: Mapping[str, object]) -> str:
    """Return the conditions of an entry: `markers`, and keys such as sys_platform = "== 'linux'"."""
    named = ("sys_platform", "os_name", "platform_machine", "platform_system", "python_version")
    found = [f"{key} {wanted[key]}" for key in named if key in wanted]
    found += [f"({wanted['markers']})"] if "markers" in wanted else []
    return f" ; {' and '.join(found)}" if found else ""
