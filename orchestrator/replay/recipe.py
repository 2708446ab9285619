"""The information needed to run a recorded command again, stored beside the recording as `rerun.json`."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from orchestrator.errors import MalformedAnswer
from orchestrator.hosts.atomic import atomic_file, atomic_write
from orchestrator.model.answers import Like, Malformed, Most, Sha256, parsed, value
from orchestrator.model.files import regular_bytes
from orchestrator.parity.facts import read_facts
from orchestrator.replay.command_line import folder_of
from orchestrator.runtime.acting import acts

NAME = "rerun.json"

PLACES = ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "MPLCONFIGDIR", "NUMBA_CACHE_DIR")
"""Variables that contain folders of the user and of libraries."""

_FORMAT = 1
_MODULES = "PYTHONPATH"
_READ = re.compile(
    r"""(?:environ(?:\.(?:get|pop|setdefault))?\s*[\[(]|getenv\s*\()\s*["']([A-Za-z_][A-Za-z0-9_]*)["']"""
)
_PREFIXES = re.compile(r"""(?:startswith\(\s*|env_prefix\s*=\s*)["']([A-Za-z][A-Za-z0-9_]*_)["']""")
_READS = re.compile(r"\benviron\b|\bgetenv\b|\benvvar\b|\bdotenv\b|BaseSettings")
"""Matches code that reads the environment, in whatever way."""
_WORDS = re.compile(r"""["']([A-Z][A-Z0-9_]+)["']""")
_BEGINNINGS = re.compile(r"""["']([A-Z][A-Z0-9_]*_)(?:\{|["']\s*\+)""")
_EVERYBODYS = frozenset(
    ("PATH", "HOME", "PWD", "OLDPWD", "USER", "LOGNAME", "SHELL", "TERM", "TMPDIR", "HOSTNAME")
)
"""Variables that every program has; a word in code that is spelt so seldom means the variable."""
_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|API_?KEY|PRIVATE|AUTH", re.IGNORECASE)
_CREDENTIALS = re.compile(r"://[^/\s]*@")


_MOST_NOTED = 1 << 26

_Path = Annotated[str, Like(r"[^\0]+")]
_Word = Annotated[str, Most(1 << 17), Like(r"[^\0]*")]
"""An argument, or the value of a variable, as the kernel passes it to a program."""


@dataclass(frozen=True)
class _Version:
    v: int = 0


@dataclass(frozen=True)
class _Noted:
    """The content of rerun.json, see `write_recipe`."""

    argv: Annotated[tuple[_Word, ...], Most(100_000)]
    cwd: Annotated[str, Like(r"/[^\0]*")]
    python: _Path
    variables: dict[_Path, _Word]
    unset: tuple[_Path, ...]
    host: str
    made: Annotated[tuple[_Path, ...], Most(1_000_000)] = ()
    places: dict[_Path, _Word | None] = field(default_factory=dict)
    stdin: Sha256 | None = None
    data: dict[_Path, _Path] | None = None
    seen: dict[_Path, _Path] = field(default_factory=dict)


@dataclass(frozen=True)
class Recipe:
    """A command as it was recorded. `cwd` and `python` are absolute.

    `variables`: those that can change results or that the project's code reads by name, and PYTHONPATH; never
    one that looks like a secret. `unset`: variables that the code reads and that were not set. `made`: files
    of `cwd` that did not exist before the run. `places`: the variables PLACES (None: not set), which are no
    difference by themselves. `stdin`: a file, named by its sha256, with what the command read from standard
    input; None if it read nothing.

    `data`: for the first steps of a profile's command, the path of each of its data trees from `cwd`, and
    where it lies here; None for a command that ran in its own folder. `seen`: the folder in which the
    recorded run saw what lies in another one, such as a copy that is gone.
    """

    argv: tuple[str, ...]
    cwd: Path
    python: str
    variables: Mapping[str, str] = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    host: str = ""
    made: tuple[str, ...] = ()
    places: Mapping[str, str | None] = field(default_factory=dict)
    stdin: Path | None = None
    data: Mapping[str, Path] | None = None
    seen: Mapping[str, str] = field(default_factory=dict)

    def located(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Return the facts with the files at the user's paths."""
        files = facts.get("files") or {}
        if not self.seen or not files.get("list"):
            return dict(facts)
        listed = [{**entry, "path": self._original(str(entry["path"]))} for entry in files["list"]]
        return {**facts, "files": {**files, "list": listed}}

    def _original(self, path: str) -> str:
        for seen, original in self.seen.items():
            if Path(path).is_relative_to(seen):
                return str(Path(original) / Path(path).relative_to(seen))
        return path

    def content_at(self, path: Path) -> Path:
        """Return where the content of a file of the working folder is: data may lie elsewhere."""
        for target, source in (self.data or {}).items():
            place = self.cwd / target
            if path.is_relative_to(place) and not os.path.lexists(place):
                return source / path.relative_to(place)
        return path

    @property
    def obstacle(self) -> str | None:
        """Return why the command cannot be run again here; None if it can."""
        if self.host != this_host():
            return "it was recorded on another computer"
        if not self.cwd.is_dir():
            return f"its working folder {self.cwd} is gone"
        if not os.access(self.python, os.X_OK):
            return f"its interpreter {self.python} is gone"
        if self.stdin and not self.stdin.is_file():
            return "what it read from standard input was not kept"
        return None

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of this process, with the recorded values of variables that change
        results.
        """
        kept = {name: value for name, value in inherited.items() if not acts(name) and name != _MODULES}
        kept = {name: kept[name] for name in kept if name not in self.unset and name not in self.places}
        there = {name: value for name, value in self.places.items() if value is not None}
        return {**kept, **there, **self.variables}


def this_host() -> str:
    """Return a stable identifier of this computer that does not reveal its name."""
    return hashlib.sha256(f"orch {platform.node()}".encode()).hexdigest()[:16]


def acting_now() -> dict[str, str]:
    """Return the variables of this process that can change numerical results."""
    return {name: value for name, value in os.environ.items() if acts(name)}


def write_recipe(
    folder: Path,
    argv: Sequence[str],
    cwd: Path,
    python: str,
    environ: Mapping[str, str] = os.environ,
    made: Iterable[str] = (),
    stdin: bytes | None = None,
    given: Mapping[str, str] | None = None,
    data: Mapping[str, Path] | None = None,
    seen: Iterable[tuple[Path, Path]] = (),
) -> None:
    """Write `folder`/rerun.json for a run that was recorded into `folder`. `made`, `stdin`, `data`, `seen`:
    see Recipe. `given`: variables that the run had beside those of `environ`.
    """
    read_ = hashlib.sha256(stdin).hexdigest() if stdin else None
    if read_ and stdin:
        keep_content(folder, read_, stdin)
    own = given or {}
    environ = {**environ, **own}
    names = set(_read_by(folder, argv, cwd, environ))
    shown = {name for name in names if not _SECRET.search(name) and not name.startswith("ORCH_")}
    shown.add(_MODULES)
    stored = {name for name in environ if acts(name) or name in shown or name in own}
    chosen = {n: v for n, v in environ.items() if n in stored and not _secret(n, v)}
    noted = {
        "v": _FORMAT,
        "argv": list(argv),
        "cwd": str(cwd),
        "python": str(python),
        "variables": dict(sorted(chosen.items())),
        "unset": sorted(name for name in shown - {_MODULES} if name not in environ),
        "host": this_host(),
        "made": sorted(made),
        "places": {name: environ.get(name) for name in PLACES},
        "stdin": read_,
        "data": None if data is None else {target: str(source) for target, source in data.items()},
        "seen": {str(seen_): str(original) for seen_, original in seen},
    }
    with atomic_file(folder / NAME) as file:
        file.write((json.dumps(noted, indent=1) + "\n").encode())


KEPT = "kept"
"""Folder beside a recording with the run's versions of modules and small data files, named by sha256."""

_SMALL = 1 << 20
_MOST = 16 << 20
"""Maximum bytes that are kept, in total and when code is read."""
_SHORT = 64 << 10
"""Maximum bytes of a text in the home folder, or of a .env file, that is kept."""


def snapshot_inputs(cwd: Path, names: Iterable[str]) -> dict[Path, bytes]:
    """Read the small files of a folder, 16 MiB in total, before a run that may overwrite its inputs."""
    found: dict[Path, bytes] = {}
    left = _MOST
    for path in (cwd / name for name in sorted(names) if not _private(name)):
        content = _content(path)
        if content is not None and len(content) <= left:
            found[path] = content
            left -= len(content)
    return found


def keep_inputs(
    folder: Path, argv: Sequence[str], cwd: Path, before: Mapping[Path, bytes] | None = None
) -> None:
    """Copy the small files that the run in `folder` executed and read, so that another run can use them after
    an edit.

    Only files that still have the recorded content, now or in `before`, are copied, readable by their owner
    alone (0600). Files whose name looks like a secret, and hidden ones in the home folder, are not. Of .env
    files and the home folder only short texts are: a .env file may set a seed, but also contain a password.
    """
    facts = _facts(folder)
    code = facts.get("modules", {}).items()
    wanted = [(root / name, digest) for name, digest in code for root in _roots(argv, cwd)]
    read_ = [entry for entry in (facts.get("files") or {}).get("list") or [] if not entry.get("made")]
    wanted += [
        (Path(entry["path"]), entry["sha256"])
        for entry in read_
        if entry.get("whole") and entry.get("sha256") and entry.get("path") and not _private(entry["name"])
    ]
    home = {Path(entry["path"]) for entry in read_ if entry.get("path") and entry["name"].startswith("~")}
    left = _MOST
    for path, digest in wanted:
        contents = (_content(path), (before or {}).get(path))
        content = next(
            (c for c in contents if c is not None and hashlib.sha256(c).hexdigest() == digest), None
        )
        if content is None or len(content) > left:
            continue
        if (path in home or path.name.startswith(".env")) and not _is_short_text(content):
            continue
        left -= len(content)
        keep_content(folder, digest, content)


def _facts(folder: Path) -> dict[str, Any]:
    """Return the facts that the run in `folder` recorded; {} if the recording is invalid."""
    try:
        return read_facts(folder / "observe" / "environment.json")
    except Malformed:
        return {}


def keep_content(folder: Path, digest: str, content: bytes) -> None:
    """Store content beside the recording in `folder`, named by its sha256."""
    kept = folder / KEPT
    if kept.is_symlink():
        kept.unlink()
    kept.mkdir(mode=0o700, exist_ok=True)
    atomic_write(kept / digest, content, 0o600)


def _private(name: str) -> bool:
    return bool(_SECRET.search(name)) or name.startswith("~/.")


def _is_short_text(content: bytes) -> bool:
    try:
        return len(content) <= _SHORT and "\0" not in content.decode()
    except UnicodeDecodeError:
        return False


def _content(path: Path) -> bytes | None:
    return _bytes(path, _SMALL)


def _bytes(path: Path, most: int) -> bytes | None:
    """Return the content of the regular file at `path`; None if there is none, or it has more than `most`
    bytes.
    """
    try:
        return regular_bytes(path.resolve(), most)
    except (OSError, RuntimeError, ValueError):  # RuntimeError: circular links
        return None


def _roots(argv: Sequence[str], cwd: Path) -> set[Path]:
    """Return the folders of the project's modules: the working folder and the program's folder."""
    program = next((word for word in argv[1:] if word.endswith(".py")), "")
    return {cwd, (cwd / program).resolve().parent, folder_of(argv, cwd) or cwd}


def _secret(name: str, value: str) -> bool:
    return bool(_SECRET.search(name) or _CREDENTIALS.search(value))


def _read_by(folder: Path, argv: Sequence[str], cwd: Path, environ: Mapping[str, str]) -> Iterable[str]:
    """Yield the variables that the recorded run's own modules name when they read the environment.

    For a prefix, those of `environ` that begin with it. If a name may be elsewhere, in a list or another
    module, those of `environ` whose name is a word in any of the modules.
    """
    named: set[str] = set()
    beginnings: set[str] = set()
    reads = False
    modules = _facts(folder).get("modules", {})
    program = next((word for word in argv[1:] if word.endswith(".py")), "")
    for root in _roots(argv, cwd):
        for name in {*modules, program} - {""}:
            content = _bytes(root / name, _MOST)
            if content is None:
                continue
            text = content.decode("utf-8", "replace")
            yield from _READ.findall(text)
            prefixes = tuple(_PREFIXES.findall(text)) if "environ" in text or "env_prefix" in text else ()
            yield from (known for known in environ if prefixes and known.startswith(prefixes))
            reads = reads or bool(_READS.search(text))
            named.update(_WORDS.findall(text))
            beginnings.update(_BEGINNINGS.findall(text))
    for known in environ if reads else ():
        if known not in _EVERYBODYS and (known in named or known.startswith(tuple(beginnings))):
            yield known


def read_recipe(folder: Path) -> Recipe | None:
    """Return the information stored beside a recording; None if there is none, or another version of orch
    wrote it. Raises MalformedAnswer."""
    path = folder / NAME
    try:
        found = parsed(regular_bytes(path, _MOST_NOTED), most=_MOST_NOTED)
        if value(_Version, found).v != _FORMAT:
            return None
        noted = value(_Noted, found)
    except FileNotFoundError:
        return None
    except Malformed as error:
        raise MalformedAnswer(
            f"How the run was started is not known: {path} is not a valid recipe: {error}. It was not used.",
            exists=f"Everything else of the run is in {folder}.",
            next_command=f"{shlex.join(['rm', '-r', str(path)])}    # then it can be compared, not run again",
        ) from None
    return Recipe(
        argv=noted.argv,
        cwd=Path(noted.cwd),
        python=str(Path(noted.cwd) / noted.python),
        variables=noted.variables,
        unset=noted.unset,
        host=noted.host,
        made=noted.made,
        places=noted.places,
        stdin=folder / KEPT / noted.stdin if noted.stdin else None,
        data=None if noted.data is None else {name: Path(source) for name, source in noted.data.items()},
        seen=noted.seen,
    )
