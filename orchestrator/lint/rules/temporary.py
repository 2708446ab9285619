"""ORC101 below /tmp: files that are read there, but that the project never writes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.lint.module import Module
from orchestrator.lint.registry import Project, project_check
from orchestrator.lint.rule import Hit, hit
from orchestrator.lint.rules.paths import ABSOLUTE, positioned
from orchestrator.lint.values import JOINS, argument, shown, texts

_BELOW = re.compile(r"(/(?:var/)?tmp/[^/\s\x00]+)(/|$)")
"""A folder below /tmp, at the beginning of a path."""
_DEEP = re.compile(r"/(var/)?tmp/[^/\s\x00]+/[^/]")
_ANYWHERE = re.compile(r"/(?:var/)?tmp/[\w.+-]+")

_BY_MODE = re.compile(
    r"(open|(io|codecs|gzip|bz2|lzma|tarfile)\.open|zipfile\.ZipFile|h5py\.File|tensorflow\.io\.gfile\.GFile)$"
)
"""Calls that read unless their second argument, the mode, says otherwise."""
_READ = re.compile(
    r"(pandas\.read_\w+|numpy\.(load|loadtxt|genfromtxt|fromfile)|(joblib|torch|tensorflow\.saved_model)\.load"
    r"|keras\.(models|saving)\.load_model|keras\.(utils|preprocessing)\.(.+\.)?(\w+_from_directory|load_img)"
    r"|tensorflow\.io\.(read_file|gfile\.(listdir|glob|walk))|tensorflow\.data\.\w+Dataset"
    r"|tensorflow\.train\.(load_checkpoint|latest_checkpoint)|scipy\.io\.(loadmat|wavfile\.read)"
    r"|cv2\.imread|PIL\.Image\.open|skimage\.io\.imread|imageio\.(v\d\.)?imread"
    r"|os\.(listdir|scandir|walk)|glob\.i?glob)$"
)
_READ_METHODS = frozenset(("read_text", "read_bytes", "iterdir", "glob", "rglob"))
"""Methods of a path that read it."""
_TAKES = frozenset(("load_weights", "flow_from_directory"))
"""Methods of other objects that read the path in their first argument."""
_LOOKS = re.compile(r"(os\.path\.(exists|isfile|isdir|getsize|basename)|print|len)$")
_LOOK_METHODS = frozenset(("exists", "is_file", "is_dir", "stat"))
_SAME = JOINS | {"str", "os.fspath", "os.path.abspath", "os.path.realpath", "os.path.normpath"}
_SAME_METHODS = frozenset(("format", "joinpath", "resolve", "absolute", "as_posix"))


@dataclass(frozen=True)
class _Use:
    """A text below the folder `top`. `read`: the path that a call reads; None for any other use."""

    top: str
    node: ast.AST
    read: str | None


@project_check()
def check_temporary(project: Project) -> Iterator[Hit]:
    """Find reads below a folder of /tmp that the project uses nowhere else."""
    uses = {id(module): list(_uses(module)) for module in project.modules}
    if not any(use.read for found in uses.values() for use in found):
        return
    written = {use.top for found in uses.values() for use in found if use.read is None}
    written |= {top for snippet in project.snippets for top in _ANYWHERE.findall(snippet.code)}
    for module in project.modules:
        for use in uses[id(module)]:
            if use.read and use.top not in written:
                message = (
                    f"{shown(use.read)!r} is read, but nothing here writes it: /tmp belongs to one computer"
                )
                yield hit(ABSOLUTE, module.snippet, use.node, message)


def _uses(module: Module) -> Iterator[_Use]:
    for node in module.nodes:
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or "/tmp" not in node.value:
            continue
        below = _BELOW.match(node.value)
        if below is None:  # a command, a text about it, or /tmp itself, to which a name is added
            yield from (_Use(top, node, None) for top in _ANYWHERE.findall(node.value))
            continue
        reads = list(_reads(module, node, set()))
        if None in reads:
            yield _Use(below[1], node, None)
        elif read := next(filter(None, reads), None):
            yield _Use(below[1], positioned(module, node), read)


def _reads(module: Module, node: ast.AST, seen: set[ast.AST]) -> Iterator[str | None]:
    """Yield for each use of a path: the deep path that is read, "" if nothing comes of it, or None.

    `seen`: the names that were followed already.
    """
    child, parent = node, module.parent(node)
    while _makes_path(module, parent, child):
        assert parent is not None
        child, parent = parent, module.parent(parent)
    if isinstance(parent, ast.Assign) and all(isinstance(t, ast.Name) for t in parent.targets):
        loads = [load for t in parent.targets for load in module.loads(t.id)]  # type: ignore[attr-defined]
        for load in loads:
            if load not in seen:
                seen.add(load)
                yield from _reads(module, load, seen)
        if not loads:  # another module may import it
            yield None
    elif isinstance(parent, ast.Call):
        yield _of_call(module, parent, child)
    elif isinstance(parent, ast.Expr):
        yield ""
    else:
        yield None


def _makes_path(module: Module, parent: ast.AST | None, child: ast.AST) -> bool:
    if isinstance(parent, ast.Call):
        method = child.attr if child is parent.func and isinstance(child, ast.Attribute) else ""
        return method in _SAME_METHODS or (not method and module.called(parent) in _SAME)
    if isinstance(parent, ast.Attribute):
        call = module.parent(parent)
        return isinstance(call, ast.Call) and call.func is parent
    return isinstance(
        parent, ast.JoinedStr | ast.FormattedValue | ast.BinOp | ast.List | ast.Tuple | ast.keyword
    )


def _of_call(module: Module, call: ast.Call, child: ast.AST) -> str | None:
    """Return the path (below a folder of /tmp) that `call` reads, "" if it only checks it, None if it may
    write there.
    """
    if child is call.func and isinstance(child, ast.Attribute):
        path: ast.AST = child.value
        reads = child.attr in _READ_METHODS or (child.attr == "open" and _mode_reads(call, 0))
        looks = child.attr in _LOOK_METHODS
    else:
        path = child.value if isinstance(child, ast.keyword) else child
        name, method = module.called(call), getattr(call.func, "attr", "")
        reads = bool(_READ.match(name)) or (_BY_MODE.match(name) is not None and _mode_reads(call, 1))
        reads = reads or method in _TAKES
        looks = bool(_LOOKS.match(name))
    if looks or not reads:
        return "" if looks else None
    known = _elements(module, path)
    return next((text for text in known if _DEEP.match(text)), "")


def _elements(module: Module, path: ast.AST) -> list[str]:
    """Return the texts of a path, or of the paths of a list."""
    if isinstance(path, ast.List | ast.Tuple):
        return [text for each in path.elts for text in texts(module, each)]
    return texts(module, path)


def _mode_reads(call: ast.Call, position: int) -> bool:
    mode = argument(call, position, "mode")
    text = mode.value if isinstance(mode, ast.Constant) else "" if mode else "r"
    return isinstance(text, str) and text.startswith("r") and "+" not in text
