"""Read a project's lock: hashed requirements, uv.lock or pylock.toml (PEP 751).

Every refusal names file and line. A pin that has no exact version or no SHA-256 is refused, because it does
not determine what is installed.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.utils import canonicalize_name

from orchestrator.errors import StackError
from orchestrator.model import Lock, Pin
from orchestrator.stack.logical_lines import logical_lines
from orchestrator.stack.own_code import Request, refuse_unlockable
from orchestrator.stack.relock import complete, relock_command
from orchestrator.stack.uv import run_uv

if TYPE_CHECKING:
    from packaging.pylock import Package

_HASH = re.compile(r"--hash[= ]\s*(\w+):([0-9A-Fa-f]+)")
_PIN = re.compile(
    r"^(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^\]]*\])?\s*===?\s*(?P<version>[^\s;,*]+)\s*(?:;(?P<marker>.*))?$"
)
_INDEX_OPTIONS = (
    "-i",
    "--index-url",
    "--extra-index-url",
    "--no-index",
    "-f",
    "--find-links",
    "--trusted-host",
)
_HARMLESS_OPTIONS = (
    *_INDEX_OPTIONS,
    "--require-hashes",
    "--only-binary",
    "--no-binary",
    "--prefer-binary",
    "--pre",
)
_WHY = {
    "-r": "it includes another file: combine both into one lock",
    "-c": "constraints are not allowed in a lock",
    "-e": "an editable package has no hash; its code belongs to the project",
}
_LONG = {"--requirement": "-r", "--constraint": "-c", "--constraints": "-c", "--editable": "-e"}


def read_lock(path: Path) -> Lock:
    """Return the lock in `path`; its kind follows from the file's name.

    Raise StackError with file:line if a pin is incomplete: the line of the file that the lock was made from,
    if that asks for what no lock can pin.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise StackError(
            f"The lock {path} cannot be read: {error.strerror}.", next_command=relock_command(path)
        ) from error
    try:
        return _parsed(path, content, _beside(path))
    except StackError as error:
        raise complete(error, path) from None


@lru_cache(maxsize=8)
def _parsed(path: Path, content: bytes, _project: bytes) -> Lock:
    """Return the lock with this content. Cached, because one command asks for it many times.

    `_project`: the pyproject.toml beside a uv.lock, so that a change of it is noticed.
    """
    text = _decoded(content, path)
    kind = _kind(path)
    if kind == "uv.lock":
        exported = export(path, "requirements.txt")
        project = path.with_name("pyproject.toml")
        requests = (Request(project, 0, line) for _, line in logical_lines(exported))
        refuse_unlockable(requests, path.parent, "uv lock")
        pins = parse_requirements(exported, path, lines=False)
    elif kind == "pylock":
        pins = parse_pylock(text, path)
    else:
        pins = parse_requirements(text, path)
    return Lock(path, kind, hashlib.sha256(content).hexdigest(), pins)


def _beside(path: Path) -> bytes:
    """Return the pyproject.toml that uv reads with its lock; b"" for other locks."""
    if _kind(path) != "uv.lock":
        return b""
    try:
        return path.with_name("pyproject.toml").read_bytes()
    except OSError:
        return b""


def _kind(path: Path) -> str:
    if path.name == "uv.lock":
        return "uv.lock"
    return "pylock" if re.fullmatch(r"pylock(\.[^.]+)?\.toml", path.name) else "requirements"


def _decoded(content: bytes, path: Path) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise StackError(f"The lock {path} is not UTF-8 text.") from None


def export(path: Path, form: str) -> str:
    """Return what `uv sync` would install from a uv.lock, in another `form`, without the project itself."""
    return run_uv(
        ["export", "--frozen", "--no-emit-project", "--no-header", "--format", form],
        cwd=path.parent,
        purpose=f"uv could not read the lock {path}:",
    )


# ---------------------------------------------------------------- requirements


def parse_requirements(text: str, path: Path, *, lines: bool = True) -> tuple[Pin, ...]:
    """Return the pins of hashed requirements. `lines=False`: errors name the file without a line, for
    generated text.
    """
    pins = []
    for number, line in logical_lines(text):
        where = f"{path}:{number}" if lines else str(path)
        if line.startswith("-"):
            _check_option(line, where)
        else:
            pins.append(_pin(line, where))
    return tuple(pins)


def index_lines(text: str) -> tuple[str, ...]:
    """Return the option lines of a requirements file that say where packages come from."""
    found = (line for _, line in logical_lines(text))
    return tuple(line for line in found if re.split(r"[= ]", line, maxsplit=1)[0] in _INDEX_OPTIONS)


def _check_option(line: str, where: str) -> None:
    option = re.split(r"[= ]", line, maxsplit=1)[0]
    if option in _HARMLESS_OPTIONS:
        return
    short = _LONG.get(option, option)
    # pip accepts "-rbase.txt" too.
    reason = _WHY.get(short) or _WHY.get(short[:2]) if not short.startswith("--") else None
    raise StackError(f"{where}: {option} is refused: {reason or 'it is not an option of a lock'}.")


def _pin(line: str, where: str) -> Pin:
    algorithms = _HASH.findall(line)
    bare = _HASH.sub("", line).strip()
    match = _PIN.match(bare)
    if not match:
        raise StackError(f"{where}: {bare!r} {_why_no_pin(bare)}.", next_command=_hashing(where))
    marker = (match["marker"] or "").strip()
    _check_marker(marker, where)
    hashes = tuple(sorted({digest.lower() for algorithm, digest in algorithms if algorithm == "sha256"}))
    if not hashes:
        raise StackError(f"{where}: {match['name']} has no SHA-256 hash.", next_command=_hashing(where))
    return Pin(canonicalize_name(match["name"]), match["version"], hashes, marker)


def _hashing(where: str) -> str:
    """Return the command that makes a lock anew; `where`: its file:line."""
    return relock_command(Path(where.rpartition(":")[0]))


def _why_no_pin(requirement: str) -> str:
    if "@" in requirement.split(";")[0] or "://" in requirement:
        return "comes from a URL or a folder, which a hash of an index file cannot pin"
    if requirement.startswith((".", "/")):
        return "is a folder, which has no hash; its code belongs to the project"
    return "is not pinned to one version with =="


def _check_marker(marker: str, where: str) -> None:
    from packaging.markers import InvalidMarker, Marker

    if not marker:
        return
    try:
        Marker(marker)
    except InvalidMarker as error:
        raise StackError(
            f"{where}: the marker {marker!r} is not valid: {str(error).splitlines()[0]}."
        ) from None


# ---------------------------------------------------------------- pylock.toml


def parse_pylock(text: str, path: Path) -> tuple[Pin, ...]:
    """Return the pins of a pylock.toml. Packages from version control, a folder or an archive are refused."""
    from packaging.pylock import Pylock, PylockUnsupportedVersionError, PylockValidationError

    document = read_toml(text, path)
    try:
        packages = Pylock.from_dict(document).packages
    except PylockUnsupportedVersionError:
        raise StackError(f"{path} is not a pylock.toml of version 1.") from None
    except PylockValidationError as error:
        what = f"{error.context}: {error.message}" if error.context else error.message
        first = what.splitlines()[0].removesuffix(".")
        raise StackError(f"{_place(text, path, error.context or '')}: {first}.") from None
    return tuple(
        _pylock_pin(package, _place(text, path, f"packages[{n}]")) for n, package in enumerate(packages)
    )


def read_toml(text: str, path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise StackError(f"{path}: {error}.") from None


def _place(text: str, path: Path, within: str) -> str:
    """Return the file, with the line of the package that `within` (packages[3].wheels[0]) belongs to, if
    there is one.
    """
    number = re.match(r"packages\[(\d+)\]", within)
    heads = [n for n, line in enumerate(text.splitlines(), 1) if re.match(r"\s*\[\[\s*packages\s*\]\]", line)]
    return f"{path}:{heads[int(number[1])]}" if number and int(number[1]) < len(heads) else str(path)


def _pylock_pin(package: Package, where: str) -> Pin:
    for source in ("vcs", "directory", "archive"):
        if getattr(package, source):
            raise StackError(
                f"{where}: {package.name} comes from {source}, which no index file's hash can pin."
            )
    if package.version is None:
        raise StackError(f"{where}: {package.name} has no version.")
    files = [*(package.wheels or ()), *([package.sdist] if package.sdist else ())]
    hashes = {file.hashes.get("sha256", "").lower() for file in files}
    if "" in hashes:
        raise StackError(f"{where}: a file of {package.name} has no SHA-256 hash.")
    return Pin(package.name, str(package.version), tuple(sorted(hashes)), str(package.marker or ""))
