"""ORC101-103: paths that exist on one computer."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TypeGuard

from orchestrator.lint.module import Module
from orchestrator.lint.registry import module_check
from orchestrator.lint.rule import Hit, Rule, Severity, hit
from orchestrator.lint.values import JOINS, UNKNOWN, shown, source

ABSOLUTE = Rule(
    "ORC101",
    "absolute-path",
    Severity.WARNING,
    "an absolute path of one computer",
    "The file does not exist on another machine: the run fails, or uses other data.",
    "Take the path from an argument or the environment, or make it relative to the script.",
)
WINDOWS = Rule(
    "ORC102",
    "windows-path",
    Severity.WARNING,
    "a path with a drive letter, or with backslashes between its parts",
    "On Linux there are no drives, and a backslash is a character of the name: no file is found.",
    "Write it with pathlib or forward slashes, relative to the script, or take it from an argument.",
)
HOME = Rule(
    "ORC103",
    "home-path",
    Severity.WARNING,
    "a path under the home folder: ~/data, expanduser, Path.home(), ~/.keras",
    "Another machine has another home folder: the file is missing there, or an older copy in a cache is "
    "read.",
    "Take the folder from an argument, and declare it as data.",
)

_ROOTS = re.compile(
    r"^/(home|Users|root|mnt|media|data|datasets?|content|kaggle|opt|srv|var|usr|workspace|scratch|gpfs|nfs"
    r"|lustre|dbfs|work|storage|Volumes|private|etc|local|net|export|projects?|app|notebooks|ml|models?|inputs?"
    r"|outputs?|drive|share|shared|disk\d*|ssd|raid|efs|fsx|cluster|train|test|images?|checkpoints?|logs?)"
    r"(/[^\s]*)?$"
)
_ANY = re.compile(r"^/[\w.\x00-]+(/[\w .\x00*?{}\[\]-]+)+/?$|^/[\w-]+\.\w{1,8}$")
_EVERYWHERE = re.compile(
    r"^/(dev|proc|sys|tmp|run|etc/(os-release|hostname|localtime)|bin|usr/bin/env|api|v\d)(/|$)"
)
_DEVICE = re.compile(r"^/(job:|replica:|task:|device:|[CGT]PU:)", re.IGNORECASE)
_DRIVE = re.compile(r"^[A-Za-z]:[\\/](?!/)|^\\\\[\w.]+\\\w|^/[A-Za-z]:/")
_BACKSLASHES = re.compile(r"^(\.{0,2}\\)?[\w .\x00-]+(\\[\w .*\x00-]+)+\\?$")
_PATH_NAME = re.compile(
    r"path|dir|file|folder|root|base|data|csv|ckpt|checkpoint|model|home|output|input|location|weights"
    r"|train|image|dataset|corpus|vocab|cache|(^|_)(out|src|dst|dest|test|val|log)s?(\d|_|$)",
    re.IGNORECASE,
)
_WEB_NAME = re.compile(r"route|url|uri|endpoint|href|redirect|(^|_)api(_|$)", re.IGNORECASE)
"""Names for places on a web server."""
_SINKS = re.compile(
    r"(open|io\.open|codecs\.open|gzip\.open|pandas\.read_\w+"
    r"|numpy\.(load|loadtxt|genfromtxt|fromfile|memmap|save\w*)"
    r"|os\.(listdir|walk|scandir|makedirs|mkdir|chdir|stat|remove|path\.\w+)|glob\.\w+"
    r"|pathlib\.\w+|tensorflow\.(io|data|saved_model|train|summary)\..+|keras\.(utils|models|callbacks|preprocessing)\..+"
    r"|shutil\.\w+|cv2\.imread|PIL\.Image\.open|joblib\.\w+|sys\.path\.(append|insert)|zipfile\.ZipFile"
    r"|tarfile\.open|google\.colab\.drive\.mount|h5py\.File|skimage\.io\.\w+|imageio\.\w+|tensorflow_datasets\.load|torch\.(load|save))$"
)
_SINK_METHODS = frozenset(
    [
        "save",
        "save_weights",
        "load_weights",
        "to_csv",
        "to_parquet",
        "flow_from_directory",
        "export",
        "restore",
        "write_text",
        "write_bytes",
        "read_text",
        "read_bytes",
        "savefig",
        "open",
    ]
)
_READERS = re.compile(
    r"(^|_)(open|load|read|imread|parse|listdir|glob|import)(_|$)|(^|_)path(_|$)|^from_file", re.I
)
"""Functions of other libraries that take a path, judging by their name."""
_ROUTES = {
    "route",
    "get",
    "post",
    "put",
    "delete",
    "patch",
    "Mount",
    "Route",
    "add_url_rule",
    "include_router",
    "mount",
}
_HOMES = {"os.path.expanduser", "pathlib.Path.home", "os.path.expandvars"}
_HOME_VARIABLES = {"HOME", "USERPROFILE", "HOMEPATH"}


@module_check(ABSOLUTE, WINDOWS, HOME)
def check_paths(module: Module) -> Iterator[Hit]:
    """Find every text that is such a path and is used as one."""
    for node in module.nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and 2 < len(node.value) < 1000:
            yield from _constant(module, node, _known_part(module, node))
        elif isinstance(node, ast.Call) and module.called(node) == "pathlib.Path.home":
            yield hit(HOME, module.snippet, node, "Path.home() is another folder on another machine")
        elif _asks_home(module, node):
            yield hit(HOME, module.snippet, node, "the home folder is another one on another machine")
        elif _splits_backslashes(node):
            message = "names are split at backslashes, which are characters of a name on Linux"
            yield hit(WINDOWS, module.snippet, node, message)


def _asks_home(module: Module, node: ast.AST) -> bool:
    """Whether this reads the home folder: `os.environ["HOME"]`, `os.getenv("HOME")`."""
    key: ast.AST | None = None
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        key = node.slice if module.dotted(node.value) == "os.environ" else None
    elif isinstance(node, ast.Call) and module.called(node) in ("os.getenv", "os.environ.get"):
        key = node.args[0] if node.args else None
    return isinstance(key, ast.Constant) and key.value in _HOME_VARIABLES


def _splits_backslashes(node: ast.AST) -> TypeGuard[ast.Call]:
    """Whether this is `path.split("\\")`."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("split", "rsplit", "partition", "rpartition")
        and bool(node.args)
        and isinstance(node.args[0], ast.Constant)
        and node.args[0].value == "\\"
        and re.search(r"path|file|name|dir|folder", source(node.func.value), re.IGNORECASE) is not None
    )


def _constant(module: Module, node: ast.Constant, text: str) -> Iterator[Hit]:
    rule = _rule(text)
    if rule is None or _DEVICE.match(text):
        return
    use = _use(module, node)
    if use == "path" or (use == "local" and (rule is not ABSOLUTE or _ROOTS.match(text))):
        yield hit(
            rule, module.snippet, positioned(module, node), f"{shown(text)!r} is a path of one computer"
        )
    elif use == "default":
        message = f"the default {shown(text)!r} is a path of one computer"
        yield hit(rule, module.snippet, node, message, severity=Severity.INFO)


def _known_part(module: Module, node: ast.Constant) -> str:
    """Return the text, with the parts beside it in an f-string or a sum."""
    parent, text = module.parent(node), str(node.value)
    if isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Add) and parent.right is node:
        return f"{UNKNOWN}{text}"
    if not isinstance(parent, ast.JoinedStr):
        return text
    at = parent.values.index(node)
    return f"{UNKNOWN if at else ''}{text}{UNKNOWN if at + 1 < len(parent.values) else ''}"


def positioned(module: Module, node: ast.AST) -> ast.AST:
    """Return the f-string that contains the node, else the node: older Pythons give no position inside
    f-strings.
    """
    parent = module.parent(node)
    return parent if isinstance(parent, ast.JoinedStr) else node


def _rule(text: str) -> Rule | None:
    if _DRIVE.match(text) or (_BACKSLASHES.match(text) and "\n" not in text and not _regex(text)):
        return WINDOWS
    if text.startswith("~/") or text == "~":
        return HOME
    if _EVERYWHERE.match(text) or text.startswith("//"):
        return None
    return ABSOLUTE if _ROOTS.match(text) or _ANY.match(text) else None


def _regex(text: str) -> bool:
    r"""Whether a text is a pattern: it contains `\d+`, `\w` or `\.`."""
    return any(re.match(r"[dwsDWSbBAZ]$|[.?*+()^$|{\[\]]", part) for part in text.split("\\")[1:])


def _use(module: Module, node: ast.AST, follow: bool = True) -> str:
    """Return how a text is used: as a "path", as a "default" of an option, by a "local" function, or ""."""
    child: ast.AST = node
    if _of_web(module, node):
        return ""
    for parent in module.above(node):
        if isinstance(parent, ast.Call):
            found = _call_use(module, parent, child)
            if found is not None:
                return found
        elif isinstance(parent, ast.keyword):
            pass
        elif isinstance(parent, ast.Attribute):
            if parent.attr != "format":
                return ""
        elif isinstance(parent, ast.Dict):
            if _dict_key(parent, child):
                return ""
            if _PATH_NAME.search(_key_of(parent, child)):
                return "path"
        elif isinstance(parent, ast.Assign | ast.AnnAssign | ast.NamedExpr):
            return _assigned_use(module, parent, child, follow)
        elif isinstance(parent, ast.arguments):
            return "path" if _parameter(parent, child) else ""
        elif not isinstance(
            parent, ast.JoinedStr | ast.FormattedValue | ast.BinOp | ast.List | ast.Tuple | ast.Set
            | ast.IfExp | ast.BoolOp | ast.Starred | ast.For | ast.comprehension | ast.Return
        ):  # fmt: skip
            return ""
        elif isinstance(parent, ast.For | ast.comprehension | ast.Return):
            return "local"
        child = parent
    return ""


def _call_use(module: Module, call: ast.Call, child: ast.AST) -> str | None:
    """Return how `call` uses the text in its argument; None if it only passes a path on."""
    name = module.called(call)
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if child is call.func:  # a method of the text itself: "…".format(), Path("…").open()
        return None if method in ("format", "joinpath", "glob", "rglob", "iterdir") else "path"
    if name in JOINS and _expected(module, call):
        return ""
    if _SINKS.match(name) or name in JOINS or name in _HOMES or method in _SINK_METHODS:
        return "path"
    if method == "add_argument":
        return "default" if isinstance(child, ast.keyword) and child.arg == "default" else ""
    if name in ("os.environ.get", "os.getenv"):
        return "default" if child in call.args[1:] or isinstance(child, ast.keyword) else ""
    if method in _ROUTES:
        return ""
    if name in ("str", "sorted", "list", "os.fspath"):
        return None
    if isinstance(child, ast.keyword) and child.arg and _PATH_NAME.search(child.arg):
        return "path"
    function = call.func
    if isinstance(function, ast.Name) and function.id in module.functions:
        return "local"
    return "local" if _READERS.search(method or getattr(function, "id", "")) else ""


def _expected(module: Module, call: ast.Call) -> bool:
    """Whether a test only compares a path, without opening it."""
    parent = module.parent(call)
    method = (
        parent.func.attr if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute) else ""
    )
    return method.startswith("assert") or (
        isinstance(parent, ast.Compare) and isinstance(module.parent(parent), ast.Assert)
    )


def _of_web(module: Module, node: ast.AST) -> bool:
    """Whether a text is in a table of routes: `ROUTES = {"home": "/home"}`."""
    statement = module.statement(node)
    if not isinstance(statement, ast.Assign | ast.AnnAssign) or not isinstance(
        statement.value, ast.Dict | ast.List | ast.Tuple
    ):
        return False
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return any(_WEB_NAME.search(str(getattr(t, "attr", None) or getattr(t, "id", ""))) for t in targets)


def _dict_key(node: ast.Dict, child: ast.AST) -> bool:
    return any(child is key for key in node.keys)


def _key_of(node: ast.Dict, child: ast.AST) -> str:
    """Return the key under which a dictionary holds `child`; "" if it is not a text."""
    pairs = zip(node.keys, node.values, strict=True)
    key = next((key for key, value in pairs if value is child), None)
    return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else ""


def _assigned_use(module: Module, node: ast.AST, child: ast.AST, follow: bool) -> str:
    if child is not getattr(node, "value", None):
        return ""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]  # type: ignore[attr-defined]
    for target in targets:
        name = getattr(target, "attr", None) or getattr(target, "id", "")
        if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
            name = str(target.slice.value)
        if _PATH_NAME.search(str(name)):
            return "path"
        if follow and isinstance(target, ast.Name):
            uses = {_use(module, load, follow=False) for load in module.loads(target.id)[:20]}
            if uses & {"path", "local"}:
                return "path"
    return ""


def _parameter(arguments: ast.arguments, child: ast.AST) -> bool:
    positional = [*arguments.posonlyargs, *arguments.args]
    given = positional[len(positional) - len(arguments.defaults) :]
    pairs = [*zip(given, arguments.defaults, strict=True)]
    pairs += [(a, d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d]
    return any(child is default and _PATH_NAME.search(argument.arg) for argument, default in pairs)
