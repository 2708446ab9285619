"""Read the installed packages: their RECORD files, and whether the files still match them."""

# ruff: noqa: PTH103, PTH105, PTH112, PTH116, PTH120
# Paths are strings here: an environment has twenty thousand files.

from __future__ import annotations

import base64
import csv
import hashlib
import json
import os
import re
import site
import sys
from email.parser import Parser
from importlib import metadata
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

_CHUNK = 1 << 20
_WORKERS = min(8, os.cpu_count() or 1)
_BY_INSTALLER = frozenset(
    {"INSTALLER", "REQUESTED", "RECORD", "direct_url.json", "uv_cache.json", "uv_build.json"}
)


class Line(NamedTuple):
    """One line of a RECORD: a path relative to site-packages, "sha256=…" or "", the size or ""."""

    path: str
    hash: str
    size: str


class Package(NamedTuple):
    """One installed package on disk. `root` is its site-packages folder."""

    name: str
    version: str
    root: str
    lines: Tuple[Line, ...]
    tag: str
    project: bool


def search_path() -> List[str]:
    """Return where this interpreter finds packages for a user's script, including the user's own site, which
    -I hides.
    """
    found = [path for path in sys.path if path and os.path.isdir(path) and not path.endswith("enter.py")]
    in_environment = sys.prefix != sys.base_prefix
    if not in_environment and not os.environ.get("PYTHONNOUSERSITE"):
        own = site.getusersitepackages()
        found += [own] if os.path.isdir(own) and own not in found else []
    return found


def installed(path: Sequence[str]) -> List[Package]:
    """Return every package on `path`, sorted by name; for equal names the first, which is imported."""
    found = {}  # type: Dict[str, Package]
    for distribution in metadata.distributions(path=list(path)):
        package = _package(distribution)
        if package and package.name not in found:
            found[package.name] = package
    return [found[name] for name in sorted(found)]


def _package(distribution: metadata.Distribution) -> Optional[Package]:
    headers = _headers(distribution)
    name = headers["Name"]
    if not name:
        return None
    rows = csv.reader((distribution.read_text("RECORD") or "").splitlines())
    return Package(
        re.sub(r"[-_.]+", "-", name).lower(),
        headers["Version"],
        str(distribution.locate_file("")),
        tuple(Line._make(row if len(row) == 3 else [*row, "", ""][:3]) for row in rows if row),
        _tag(distribution.read_text("WHEEL") or ""),
        _is_project(distribution.read_text("direct_url.json") or ""),
    )


def _headers(distribution: metadata.Distribution) -> Any:
    """Return the headers of the package's metadata. The description below them is long, and not parsed."""
    text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO")
    return Parser().parsestr(text.partition("\n\n")[0]) if text else distribution.metadata


def _tag(wheel: str) -> str:
    return " ".join(sorted(line[5:].strip() for line in wheel.splitlines() if line.startswith("Tag: ")))


def _is_project(direct_url: str) -> bool:
    """Whether a package was installed from a folder: the user's own code, which is synced separately."""
    try:
        return "dir_info" in json.loads(direct_url)
    except ValueError:
        return False


def is_payload(path: str) -> bool:
    """Whether a file belongs to the package, rather than being written by an installer: caches, scripts with
    its paths, notes.
    """
    if path.endswith(".pyc") or "__pycache__" in path:
        return False
    if path.startswith(("../", "/")):
        parts = path.split("/")
        return not any(part in ("bin", "Scripts", "include") for part in parts)
    if ".dist-info/" not in path:
        return True
    folder, _, name = path.rpartition("/")
    return not (folder.endswith(".dist-info") and name in _BY_INSTALLER)


def record_digest(package: Package) -> str:
    """Return one hash of the package's payload: sorted (path, hash); "" if the package has no RECORD."""
    payload = sorted((line.path, line.hash) for line in package.lines if line.hash and is_payload(line.path))
    if not payload:
        return ""
    return hashlib.sha256(json.dumps(payload).encode()).hexdigest()


# ---------------------------------------------------------------- the files themselves


def altered_files(packages: Sequence[Package], cache: Optional[str]) -> Dict[str, List[str]]:
    """Return for each package the files that are missing or differ from its RECORD, by hash of every byte.

    `cache` remembers, for a package without differences, the size, times and inode of each file: while those
    stay, no byte is read. The kernel sets the change time, so an edit that restores the others is noticed.
    """
    known = _read_cache(cache)
    states = [(package, _state(package)) for package in packages]
    doubted = [package for package, state in states if known.get(package.name) != state]
    found = _verify(doubted) if doubted else {}
    seen = {package.name: state for package, state in states if not found.get(package.name)}
    if cache and seen != known:
        _write_cache(cache, seen)
    return {name: files for name, files in found.items() if files}


def _state(package: Package) -> str:
    stamped = [(path, hashed, _stamp(_place(package, path))) for path, hashed, _ in package.lines if hashed]
    total = hashlib.sha256(repr((package.version, package.root)).encode())
    total.update("".join("%s %s %s\n" % each for each in stamped).encode())
    return total.hexdigest()


def _stamp(path: str) -> str:
    try:
        facts = os.stat(path)
    except OSError:
        return "gone"
    return "%d %d %d %d" % (facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino)


def _place(package: Package, path: str) -> str:
    return path if path.startswith("/") else package.root + "/" + path


def _verify(packages: Sequence[Package]) -> Dict[str, List[str]]:
    from concurrent.futures import ThreadPoolExecutor  # imported late, because usually no file is read again

    found = {}
    with ThreadPoolExecutor(_WORKERS) as pool:
        for package in packages:
            checked = [line for line in package.lines if line.hash and is_payload(line.path)]
            verdicts = pool.map(_is_whole, [_place(package, line.path) for line in checked], checked)
            found[package.name] = sorted(line.path for line, whole in zip(checked, verdicts) if not whole)  # noqa: B905
    return found


def _is_whole(path: str, line: Line) -> bool:
    algorithm, _, wanted = line.hash.partition("=")
    try:
        if line.size and os.stat(path).st_size != int(line.size):
            return False
        digest = hashlib.new(algorithm)
        with open(path, "rb", buffering=0) as stream:
            for piece in iter(lambda: stream.read(_CHUNK), b""):
                digest.update(piece)
    except (OSError, ValueError):
        return False
    return base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode() == wanted.rstrip("=")


def _read_cache(path: Optional[str]) -> Dict[str, str]:
    try:
        with open(path or "", encoding="utf-8") as stream:
            return {str(name): str(state) for name, state in json.load(stream).items()}
    except (OSError, ValueError, AttributeError):
        return {}


def _write_cache(path: str, seen: Dict[str, str]) -> None:
    try:
        import tempfile

        os.makedirs(os.path.dirname(path), exist_ok=True)
        handle, name = tempfile.mkstemp(dir=os.path.dirname(path))
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            json.dump(seen, stream)
        os.replace(name, path)
    except OSError:
        pass  # only a cache: the next call reads the files again


# ---------------------------------------------------------------- files that belong to no package

_EXPECTED_STRAYS = re.compile(
    r"(_virtualenv|distutils-precedence|.*\.virtualenv|README.*|~.*|.*\.egg-info|.*\.pyc)(\..*)?"
)


def strays(path: Sequence[str], packages: Iterable[Package]) -> List[str]:
    """Return importable files in this environment's own folders that belong to no package."""
    by_root = {}  # type: Dict[str, set[str]]
    for package in packages:
        owned = by_root.setdefault(os.path.normpath(package.root), set())
        owned.update(line.path.split("/", 1)[0] for line in package.lines)
    return sorted(name for root in path if os.path.normpath(root) in by_root and _is_environment(root)
                  for name in _unowned(root, by_root[os.path.normpath(root)]))  # fmt: skip


def _is_environment(root: str) -> bool:
    """Whether a folder belongs to a virtual environment: those of a system contain many files without
    records.
    """
    return sys.prefix != sys.base_prefix and os.path.normpath(root).startswith(os.path.normpath(sys.prefix))


def _unowned(root: str, owned: Any) -> Iterator[str]:
    for entry in os.scandir(root):
        name = entry.name
        if (
            name in owned
            or name == "__pycache__"
            or name.endswith(".dist-info")
            or _EXPECTED_STRAYS.fullmatch(name)
        ):
            continue
        if name.endswith((".py", ".so", ".pth")) or entry.is_dir():
            yield name
