"""Verb `bytecode`: compile the packages of a new environment, those that another one has not compiled.

    bytecode FOLDER NAME

FOLDER has environments, and NAME.json beside each complete one. Of a source that is the same file in two of
them (a hard link into uv's cache), the compiled file is linked too. Python checks it as always, by the time
and size of the source, and corrects the path in it. What cannot be compiled, such as a template, is left.
"""

# ruff: noqa: PTH103, PTH112, PTH118, PTH119, PTH121, PTH207, PTH208
# Paths are strings here: an environment has twenty thousand files.

from __future__ import annotations

import glob
import os
import sys
from typing import Dict, Iterator, List, NoReturn, Set, Tuple

_CACHE = "__pycache__"
_OTHERS = 3
"""Environments that are looked at. Older ones have little that these lack."""


def main(argv: List[str]) -> int:
    if len(argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    link_compiled(*argv)
    compile_rest(*argv)
    return 0


def link_compiled(folder: str, name: str) -> int:
    """Link what the newest complete environments of `folder` have compiled of the sources of `name`; return
    of how many.
    """
    return sum(
        _link_tree(site, os.path.join(other, os.path.relpath(site, os.path.join(folder, name))))
        for other in _others(folder, name)
        for site in _sites(folder, name)
    )


def compile_rest(folder: str, name: str) -> None:
    """Compile every source of `name` that has no compiled file, on all processors."""
    rest = [path for site in _sites(folder, name) for path in _uncompiled(site)]
    workers = len(os.sched_getaffinity(0))
    children = [_compiling(share) for share in (rest[number::workers] for number in range(workers)) if share]
    for child in children:
        os.waitpid(child, 0)


def _sites(folder: str, name: str) -> List[str]:
    return glob.glob(os.path.join(glob.escape(os.path.join(folder, name)), "lib", "python*", "site-packages"))


def _others(folder: str, name: str) -> List[str]:
    complete = [path[: -len(".json")] for path in glob.glob(os.path.join(glob.escape(folder), "*.json"))]
    found = [path for path in complete if os.path.isdir(path) and os.path.basename(path) != name]
    return sorted(found, key=os.path.getmtime, reverse=True)[:_OTHERS]


# ---------------------------------------------------------------- link


def _link_tree(top: str, other: str) -> int:
    found = _folders(top)
    return sum(_link_sources(at, os.path.join(other, os.path.relpath(at, top)), has) for at, has in found)


def _folders(top: str) -> Iterator[Tuple[str, Set[str]]]:
    """Yield each folder with the stems of its sources."""
    for folder, below, names in os.walk(top):
        below[:] = [name for name in below if name != _CACHE]
        yield folder, {name[:-3] for name in names if name.endswith(".py")}


def _link_sources(folder: str, other: str, sources: Set[str]) -> int:
    here, there = _compiled(folder), _compiled(other)
    wanted = [source for source in sources if source in there and source not in here]
    same = [source for source in wanted if _same(f"{folder}/{source}.py", f"{other}/{source}.py")]
    if same:
        os.makedirs(f"{folder}/{_CACHE}", exist_ok=True)
    for source in same:
        for name in there[source]:
            _link(f"{other}/{_CACHE}/{name}", f"{folder}/{_CACHE}/{name}")
    return len(same)


def _compiled(folder: str) -> Dict[str, List[str]]:
    """Return the compiled files of a folder by the stem of their source."""
    found = {}  # type: Dict[str, List[str]]
    try:
        for name in os.listdir(f"{folder}/{_CACHE}"):
            if name.endswith(".pyc"):
                found.setdefault(name.partition(".")[0], []).append(name)
    except FileNotFoundError:
        pass
    return found


def _same(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        pass  # then it is compiled


# ---------------------------------------------------------------- compile


def _uncompiled(top: str) -> Iterator[str]:
    for folder, sources in _folders(top):
        for source in sorted(sources.difference(_compiled(folder))):
            yield f"{folder}/{source}.py"


def _compiling(sources: List[str]) -> int:
    """Return the process that compiles these."""
    child = os.fork()
    if child == 0:
        _compile(sources)
    return child


def _compile(sources: List[str]) -> NoReturn:
    import compileall

    try:
        for source in sources:
            compileall.compile_file(source, quiet=2)
    finally:
        os._exit(0)
