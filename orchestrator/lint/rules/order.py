"""ORC401-402: files in the order of the file system."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from orchestrator.lint.module import Module
from orchestrator.lint.registry import module_check
from orchestrator.lint.rule import Hit, Rule, Severity, hit
from orchestrator.lint.values import argument, is_none, source, truth, unclear

UNSORTED = Rule(
    "ORC401",
    "unsorted-listing",
    Severity.WARNING,
    "files from glob, listdir, iterdir, scandir or os.walk, used unsorted",
    "Each file system lists files in another order: other batches from step 1, other class numbers.",
    "Wrap it in sorted(). For os.walk: dirs.sort(), and sorted(files).",
)
LIST_FILES = Rule(
    "ORC402",
    "shuffled-list-files",
    Severity.WARNING,
    "Dataset.list_files without shuffle=False and without a seed",
    "It shuffles the files by default: every run reads them in a different order.",
    "Pass shuffle=False or a seed, or give sorted(glob(…)) to from_tensor_slices.",
)

_LISTINGS = frozenset(
    [
        "glob.glob",
        "glob.iglob",
        "os.listdir",
        "os.scandir",
        "tensorflow.io.gfile.glob",
        "tensorflow.io.gfile.listdir",
        "tensorflow.io.matching_files",
        "os.walk",
        "tensorflow.io.gfile.walk",
    ]
)
_METHODS = {"glob", "rglob", "iterdir"}
_UNORDERED = frozenset(
    [
        "sorted",
        "len",
        "set",
        "frozenset",
        "sum",
        "any",
        "all",
        "min",
        "max",
        "collections.Counter",
        "natsort.natsorted",
        "natsorted",
        "bool",
        "print",
    ]
)
_PASSES = {
    "list",
    "tuple",
    "map",
    "filter",
    "enumerate",
    "iter",
    "str",
    "zip",
    "numpy.array",
    "tensorflow.constant",
}
_HARMLESS = re.compile(
    r"(os\.(remove|unlink|rmdir|chmod|utime)|shutil\.(rmtree|move|copy\w*)|print|logging\.\w+)$"
)
_HARMLESS_METHODS = {"unlink", "rmdir", "touch", "chmod", "mkdir", "info", "debug", "add"}
_SORTING = {"sort", "natsort"}


@module_check(UNSORTED)
def check_listings(module: Module) -> Iterator[Hit]:
    for call in module.calls:
        name = _listing(module, call)
        if name and _ordered_use(module, call, walk=name.endswith("walk")):
            yield hit(UNSORTED, module.snippet, call, f"{name} lists files in the order of the file system")


@module_check(LIST_FILES)
def check_list_files(module: Module) -> Iterator[Hit]:
    for call in module.calls:
        if module.called(call) != "tensorflow.data.Dataset.list_files" or unclear(call):
            continue
        shuffles = truth(module, argument(call, 1, "shuffle")) is not False
        seed = argument(call, 2, "seed")
        if shuffles and (seed is None or is_none(seed)):
            yield hit(LIST_FILES, module.snippet, call, "list_files shuffles, without a seed")


def _listing(module: Module, call: ast.Call) -> str:
    name = module.called(call)
    if name in _LISTINGS:
        return name
    if not (isinstance(call.func, ast.Attribute) and call.func.attr in _METHODS) or name.startswith("glob."):
        return ""
    base = module.dotted(call.func.value)
    if base and not base.startswith("pathlib"):
        return "" if base in module.aliases.values() else f"{call.func.attr}()"
    return f"{call.func.attr}()"


def _ordered_use(module: Module, call: ast.AST, *, walk: bool = False, follow: bool = True) -> bool:
    """Whether the use of a listing depends on its order."""
    child: ast.AST = call
    for parent in module.above(call):
        if isinstance(parent, ast.Attribute) and parent.attr == "__next__":
            pass
        elif isinstance(parent, ast.Subscript) and child is parent.value and walk:
            pass  # one of the three parts (root, folders, files) of a walk
        elif isinstance(parent, ast.Call):
            if child is parent.func:
                if getattr(child, "attr", "") == "__next__":
                    child = parent
                    continue
                return True
            name = module.called(parent)
            if name in _UNORDERED or name.endswith(".update") or _asserts(parent):
                return False
            if name == "next" and walk:
                child = parent
                continue
            if name not in _PASSES and not isinstance(child, ast.GeneratorExp):
                return True
        elif isinstance(parent, ast.comprehension):
            pass
        elif isinstance(parent, ast.SetComp | ast.Compare | ast.Expr | ast.Assert) or (
            isinstance(parent, ast.If | ast.While | ast.IfExp) and child is parent.test
        ):
            return False
        elif isinstance(parent, ast.UnaryOp | ast.BoolOp):
            pass
        elif isinstance(parent, ast.For):
            return _loop_orders(module, parent, walk=walk)
        elif isinstance(parent, ast.Assign | ast.AnnAssign | ast.NamedExpr) and follow:
            return _variable_orders(module, parent)
        elif not isinstance(
            parent, ast.GeneratorExp | ast.ListComp | ast.Starred | ast.List | ast.BinOp | ast.Tuple
        ):
            return True
        child = parent
    return True


def _asserts(call: ast.Call) -> bool:
    """Whether a test checks a listing: `self.assertEqual(os.listdir(folder), [])`."""
    return isinstance(call.func, ast.Attribute) and call.func.attr.startswith("assert")


def _variable_orders(module: Module, statement: ast.AST) -> bool:
    """Whether some use of the variable that holds a listing depends on its order."""
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]  # type: ignore[attr-defined]
    names = [target.id for target in targets if isinstance(target, ast.Name)]
    if not names:
        return True
    scope = module.scope(statement)
    begin = getattr(statement, "lineno", 0)
    loads = [load for load in module.loads(names[0]) if load.lineno >= begin and _below(module, load, scope)]
    for load in sorted(loads, key=lambda each: (each.lineno, each.col_offset)):
        if _sorts(module, load):
            return False
        if _ordered_use(module, load, follow=False):
            return True
    return not loads


def _below(module: Module, node: ast.AST, scope: ast.AST) -> bool:
    return any(each is scope for each in module.above(node))


def _sorts(module: Module, load: ast.Name) -> bool:
    """Whether this sorts the listing: `files.sort()` or `files = sorted(files)`, but no shuffle."""
    parent = module.parent(load)
    if isinstance(parent, ast.Attribute) and parent.attr in _SORTING:
        return True
    if isinstance(parent, ast.Call) and module.called(parent) in ("sorted", "natsort.natsorted"):
        target = module.parent(parent)
        return isinstance(target, ast.Assign) and any(source(t) == load.id for t in target.targets)
    return False


def _loop_orders(module: Module, loop: ast.For, *, walk: bool) -> bool:
    if walk and _walk_sorted(loop):
        return False
    if all(_harmless(module, statement) for statement in loop.body) or _only_counts(module, loop):
        return False
    return not _collected_then_sorted(module, loop)


def _only_counts(module: Module, loop: ast.For) -> bool:
    """Whether a loop only adds up numbers: `total += path.stat().st_size`."""
    counted = False
    for node in (each for statement in loop.body for each in ast.walk(statement)):
        if isinstance(node, ast.AugAssign):
            start = module.bound(node.target)[:1] if isinstance(node.target, ast.Name) else []
            if not (start and isinstance(start[0], ast.Constant) and isinstance(start[0].value, int)):
                return False
            counted = True
        elif isinstance(node, ast.Return | ast.Break | ast.Yield | ast.YieldFrom | ast.Assign | ast.Expr):
            return False
    return counted


def _walk_sorted(loop: ast.For) -> bool:
    """Whether `for root, dirs, files in os.walk(d)` sorts dirs in place, and sorts files or does not use
    them.
    """
    if not (isinstance(loop.target, ast.Tuple) and len(loop.target.elts) == 3):
        return False
    _, dirs, files = (getattr(each, "id", "") for each in loop.target.elts)
    text = [source(statement) for statement in loop.body]
    inside = "\n".join(text)
    dirs_sorted = f"{dirs}.sort(" in inside or f"{dirs}[:] = sorted({dirs}" in inside
    used = [n for s in loop.body for n in ast.walk(s) if isinstance(n, ast.Name) and n.id == files]
    files_sorted = f"sorted({files}" in inside or f"{files}.sort(" in inside or not used
    return dirs_sorted and files_sorted


def _harmless(module: Module, statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        call = statement.value
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        return bool(_HARMLESS.match(module.called(call))) or method in _HARMLESS_METHODS
    if isinstance(statement, ast.If):
        return all(_harmless(module, each) for each in [*statement.body, *statement.orelse])
    return isinstance(statement, ast.Pass | ast.Continue)


def _collected_then_sorted(module: Module, loop: ast.For) -> bool:
    """Whether the loop only appends to a list that is sorted afterwards."""
    appended = {
        call.func.value.id
        for statement in loop.body
        for call in ast.walk(statement)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
        and call.func.attr in ("append", "extend") and isinstance(call.func.value, ast.Name)
    }  # fmt: skip
    if not appended:
        return False
    end = loop.end_lineno or loop.lineno
    for name in appended:
        later = [load for load in module.loads(name) if load.lineno > end]
        first = min(later, key=lambda each: (each.lineno, each.col_offset), default=None)
        parent = module.parent(first) if first else None
        in_order = first is not None and _sorts(module, first)
        if not in_order and not (isinstance(parent, ast.Call) and module.called(parent) in _UNORDERED):
            return False
    return True
