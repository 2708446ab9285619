"""Refuse requirements that no lock can pin, such as folders with the user's own code, and say what to do."""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from orchestrator.errors import StackError
from orchestrator.stack.indexes import without_secrets
from orchestrator.stack.logical_lines import logical_lines

_EDITABLE = re.compile(r"^(?:-e|--editable)[= ]?\s*(?P<target>.+)$")
_INCLUDE = re.compile(r"^(?:-r|--requirement)[= ]?\s*(?P<file>.+)$")
_NAMED = re.compile(r"^[A-Za-z0-9][\w.-]*\s*(?:\[[^\]]*\])?\s*@\s*(?P<target>.+)$")
_REPOSITORY = re.compile(r"^(?:git|hg|svn|bzr)\+(?P<url>[^#]+?)(?:@(?P<revision>[^@/#]+))?(?:#.*)?$")
_OTHER_FORMATS = (".toml", ".py", ".cfg", ".yml", ".yaml")
_ARCHIVES = (".whl", ".zip", ".tar.gz", ".tar.bz2", ".tar.xz", ".tgz")


@dataclass(frozen=True)
class Request:
    """One logical line of a file that names packages. `line` counts from 1; 0 if it is not known."""

    file: Path
    line: int
    text: str

    @property
    def where(self) -> str:
        here = Path.cwd()
        file = self.file.relative_to(here) if self.file.is_relative_to(here) else self.file
        return f"{file}:{self.line}" if self.line else str(file)

    @property
    def written(self) -> str:
        return repr(without_secrets(self.text))


def requests_of(source: Path) -> tuple[Request, ...]:
    """Return the requirements and options in `source` and the files that it includes; none if it has another
    format than requirements. Files that cannot be read are skipped: uv names them.
    """
    if source.suffix in _OTHER_FORMATS or source.name in {"Pipfile", "uv.lock"}:
        return ()
    return tuple(_requests(source, set()))


def _requests(file: Path, seen: set[Path]) -> Iterator[Request]:
    if file.resolve() in seen:
        return
    seen.add(file.resolve())
    try:
        text = file.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return
    for number, line in logical_lines(text):
        yield Request(file, number, line)
        included = _INCLUDE.match(line)
        if included:
            yield from _requests(file.parent / included["file"].strip(), seen)


def refuse_unlockable(requests: Iterable[Request], project: Path, again: str) -> None:
    """Raise StackError for the first request that is a folder, a file or a URL.

    `project`: the folder of the profile. `again`: the command that makes the lock once this is solved.
    """
    for request in requests:
        target = _target(request.text)
        if target is not None:
            raise _refusal(request, target, project, again)


def _target(line: str) -> str | None:
    """Return the path or URL that a requirement names; None if it names a package of an index."""
    bare = re.split(r"\s--hash|\s*;\s", line, maxsplit=1)[0].strip()
    matched = _EDITABLE.match(bare) or _NAMED.match(bare)
    if matched:
        return matched["target"].strip("\"' ")
    if bare.startswith("-"):
        return None
    is_path = bare.startswith((".", "~")) or "/" in bare or bare.lower().endswith(_ARCHIVES)
    return bare if is_path else None


def _refusal(request: Request, target: str, project: Path, again: str) -> StackError:
    repository = _REPOSITORY.match(target)
    if repository:
        return _repository(request, repository["url"], repository["revision"], again)
    path = _local(target)
    if path is None or path.lower().endswith(_ARCHIVES):
        return StackError(
            f"{request.where}: {request.written} is a file or a URL, which the hash of an index cannot pin. "
            "Name a version from a package index instead: name==version.",
            next_command=f"{again}    # after the edit",
        )
    folder = Path(os.path.normpath(request.file.parent / Path(path).expanduser()))
    message = (
        f"{request.where}: {request.written} is a folder with your own code: it has no hash, so no lock "
    )
    message += f"can pin it.\n{_remedy(request, folder, project)}"
    return StackError(message, next_command=f"{again}    # after the edit")


def _local(target: str) -> str | None:
    """Return the path of a target on this computer, without extras; None for a URL elsewhere."""
    if target.startswith("file:"):
        return unquote(urlsplit(target).path)
    if "://" in target:
        return None
    return re.sub(r"\[[^\]]*\]$", "", target)


def _repository(request: Request, url: str, revision: str | None, again: str) -> StackError:
    url = without_secrets(url).replace("***@", "")
    name = url.rstrip("/").rpartition("/")[2].removesuffix(".git") or "package"
    folder = f"../{name}"
    clone = shlex.join(["git", "clone", url, folder])
    checkout = f" && {shlex.join(['git', '-C', folder, 'checkout', revision])}" if revision else ""
    return StackError(
        f"{request.where}: {request.written} comes from a repository, which the hash of an index cannot pin. "
        f"Name a released version instead ({name}==version), or clone it and name the folder: {again} then "
        "says how its code is sent.",
        next_command=f"{clone}{checkout}    # and in its place: -e {folder}",
    )


def _remedy(request: Request, folder: Path, project: Path) -> str:
    """Return the edits that send the code in `folder` to the machine and put it on the import path."""
    needs = _dependencies(folder)
    removal = "Remove this line" if request.line else "Remove it"
    instead = f" and write what it needs in its place: {', '.join(needs)}" if needs else ""
    home, root = Path(os.path.realpath(folder)), Path(os.path.realpath(project))
    if home.is_relative_to(root):
        importable = (home.relative_to(root) / _layout(folder)).as_posix()
        sent = "This code is in the project, so it is sent anyway"
        return f"{removal}{instead}. {sent}; in orch.yaml, put it on the import path:\n{_env(importable)}"
    target = _free_name(home.name, project)
    importable = (Path(target) / _layout(folder)).as_posix()
    data = f"    data: [{{source: {os.path.relpath(home, root)}, target: {target}}}]"
    edit = "In orch.yaml, send the folder and put it on the import path"
    return f"{removal}{instead}. {edit}:\n{data}\n{_env(importable)}"


def _env(importable: str) -> str:
    return f"    train: {{env: {{PYTHONPATH: {importable}}}}}    # beside the keys that are there"


def _layout(folder: Path) -> str:
    return "src" if (folder / "src").is_dir() else ""


def _free_name(name: str, project: Path) -> str:
    """Return a name for the folder that nothing in the project has."""
    return f"{name}-code" if (project / name).exists() else name


def _dependencies(folder: Path) -> list[str]:
    """Return the packages that the pyproject.toml in `folder` lists."""
    try:
        listed = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []
    return [each for each in listed if isinstance(each, str)] if isinstance(listed, list) else []
