"""Choose the files that a lock means on a machine, and cache them on this computer by SHA-256.

uv finds the files, because it knows the user's indexes. Their hashes are the lock's, so no index has to be
trusted.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.utils import canonicalize_name

from orchestrator.errors import StackError
from orchestrator.hosts.atomic import atomic_write
from orchestrator.model import Lock, Pin
from orchestrator.model.answers import LONG
from orchestrator.model.files import regular_bytes
from orchestrator.stack.indexes import bare, has_secret
from orchestrator.stack.lock import export, index_lines, read_toml
from orchestrator.stack.target import Target
from orchestrator.stack.uv import run_uv


@dataclass(frozen=True)
class Wheel:
    """One wheel of a lock. `url`: http(s) or file, without credentials. `size`: bytes, None if not known."""

    name: str
    version: str
    filename: str
    url: str
    sha256: str
    size: int | None = None


def cache_home(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder for wheels and built environments: $ORCH_CACHE_HOME, or orch in the user's cache."""
    if environ.get("ORCH_CACHE_HOME"):
        return Path(environ["ORCH_CACHE_HOME"]).absolute()
    home = Path(environ.get("HOME", "~")).expanduser()
    return Path(environ.get("XDG_CACHE_HOME") or home / ".cache") / "orch"


def find_wheels(
    lock: Lock, pins: Sequence[Pin], target: Target, cache: Path, *, anew: bool = False
) -> tuple[Wheel, ...]:
    """Return the best wheel for `target` of each pin. The result is cached, so the next call needs no
    network.

    `anew`: ignore a cached result, because an index may have moved its files. Raise StackError with the name
    of each package that has no suitable wheel.
    """
    kept = cache / "resolved" / f"{_question(pins, target)}.json"
    known = None if anew else _read_kept(kept)
    if known is not None:
        return known
    offered = _offered(lock, pins, target.version)
    chosen = [(pin, choose(pin, offered.get((pin.name, pin.version), ()), target)) for pin in pins]
    without = [f"{pin.name} {pin.version}" for pin, wheel in chosen if wheel is None]
    if without:
        raise StackError(
            f"No wheel in the lock fits {target}: {', '.join(without)}. "
            "orch does not build from source, because two machines can build different files.",
            next_command="uv build --wheel    # once; then lock the built file",
        )
    wheels = tuple(wheel for _, wheel in chosen if wheel)
    # A URL with a query may be signed: it is a secret, and expires soon.
    if not any(urlsplit(wheel.url).query for wheel in wheels):
        atomic_write(kept, json.dumps([asdict(wheel) for wheel in wheels], indent=1).encode())
    return wheels


def _question(pins: Sequence[Pin], target: Target) -> str:
    asked = [[pin.name, pin.version, pin.hashes] for pin in pins]
    text = json.dumps([asked, target.tags], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _read_kept(path: Path) -> tuple[Wheel, ...] | None:
    try:
        return tuple(Wheel(**facts) for facts in json.loads(regular_bytes(path, LONG)))
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def choose(pin: Pin, offered: Sequence[Wheel], target: Target) -> Wheel | None:
    """Return the wheel whose tags come first in the target's order, among those whose hash the pin allows."""
    rank = {tag: place for place, tag in enumerate(target.tags)}
    fitting = [
        (place, _build(wheel.filename), wheel)
        for wheel in offered
        if wheel.sha256 in pin.hashes
        for place in [min((rank[tag] for tag in wheel_tags(wheel.filename) if tag in rank), default=None)]
        if place is not None
    ]
    return min(fitting, key=lambda item: (item[0], *item[1], item[2].filename))[2] if fitting else None


def wheel_tags(filename: str) -> frozenset[str]:
    """Return the tags in a wheel's file name; none if it is not the name of a wheel."""
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename

    try:
        return frozenset(map(str, parse_wheel_filename(filename)[3]))
    except InvalidWheelFilename:
        return frozenset()


def _build(filename: str) -> tuple[int, str]:
    """Return a sort key for the build number: the highest sorts first."""
    from packaging.utils import parse_wheel_filename

    build = parse_wheel_filename(filename)[2]
    return (-build[0], build[1]) if build else (0, "")


# ---------------------------------------------------------------- what the indexes offer


def _offered(lock: Lock, pins: Sequence[Pin], version: str) -> dict[tuple[str, str], list[Wheel]]:
    if lock.kind == "pylock":
        text = lock.path.read_text("utf-8-sig")
    elif lock.kind == "uv.lock":
        text = export(lock.path, "pylock.toml")
    else:
        text = _compile(lock, pins, version)
    found: dict[tuple[str, str], list[Wheel]] = {}
    for wheel in parse_wheels(read_toml(text, lock.path), lock.path.parent):
        found.setdefault((wheel.name, wheel.version), []).append(wheel)
    return found


def _compile(lock: Lock, pins: Sequence[Pin], version: str) -> str:
    """Return uv's list of all files of these pins. They are passed by stdin, because an index line may
    hold a password.
    """
    if not pins:
        return ""
    options = index_lines(lock.path.read_text("utf-8-sig")) if lock.path.exists() else ()
    return run_uv(
        ["pip", "compile", "-", "--no-deps", "--universal", "--format", "pylock.toml", "--no-header",
         "--python-version", version],
        stdin="\n".join([*options, requirements(pins)]),
        cwd=lock.path.parent,
        purpose=f"The files of {lock.path} could not be found in the package indexes:",
    )  # fmt: skip


def index_hints(lock: Lock) -> tuple[str, ...]:
    """Return what the lock and the project beside it say about indexes: option lines, URLs with a login,
    NAME=URL.
    """
    text = lock.path.read_text("utf-8-sig") if lock.path.exists() else ""
    if lock.kind == "requirements":
        own = index_lines(text)
    else:
        own = tuple(line for line in text.splitlines() if "://" in line and "@" in line)
    return (*own, *_named_indexes(lock.path.parent / "pyproject.toml"))


def _named_indexes(project: Path) -> Iterator[str]:
    """Yield [[tool.uv.index]] of a pyproject.toml as NAME=URL."""
    if project.exists():
        tables = read_toml(project.read_text("utf-8"), project).get("tool", {}).get("uv", {}).get("index", [])
        yield from (f"{table['name']}={table['url']}" for table in tables if {"name", "url"} <= set(table))


def requirements(pins: Sequence[Pin]) -> str:
    """Return the pins as hashed requirements, without markers."""
    return "".join(
        f"{pin.name}=={pin.version}"
        + "".join(f" \\\n    --hash=sha256:{digest}" for digest in pin.hashes)
        + "\n"
        for pin in pins
    )


def parse_wheels(document: Mapping[str, Any], folder: Path) -> Iterator[Wheel]:
    """Yield every wheel of a pylock document; relative paths are below `folder`."""
    for package in document.get("packages", []):
        for file in package.get("wheels", []):
            url = str(file.get("url") or (folder / str(file.get("path", ""))).absolute().as_uri())
            filename = str(file.get("name") or unquote(urlsplit(url).path).rsplit("/", 1)[-1])
            yield Wheel(
                canonicalize_name(str(package["name"])),
                str(package.get("version", "")),
                filename,
                bare(url) if has_secret(url) else url,
                str(file.get("hashes", {}).get("sha256", "")).lower(),
                file.get("size"),
            )
