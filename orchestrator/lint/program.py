"""Modules that run together as one program: what it seeds, calls, imports and sets."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import PurePosixPath

from orchestrator.lint.datasets import is_model
from orchestrator.lint.module import Module
from orchestrator.lint.source import Snippet
from orchestrator.lint.values import argument, source, texts

Found = tuple[Module, ast.Call]
_TRAINS = {"fit", "train_on_batch", "fit_generator"}
_FRAMEWORKS = ("tensorflow", "keras", "tf_keras")
_NOT_KERAS = ("sklearn.", "xgboost.", "lightgbm.", "scipy.")


class Program:
    """A script with the modules of its project that it imports, or the cells of a notebook."""

    def __init__(self, modules: Sequence[Module]) -> None:
        self.modules = tuple(modules)

    @cached_property
    def _by_name(self) -> dict[str, list[Found]]:
        found: dict[str, list[Found]] = {}
        for module in self.modules:
            for call in module.calls:
                name = module.called(call)
                if name:
                    found.setdefault(name, []).append((module, call))
        return found

    @property
    def named(self) -> Iterator[tuple[str, Module, ast.Call]]:
        """Return every call of something with a known name."""
        return ((name, *each) for name, calls in self._by_name.items() for each in calls)

    def calls(self, *names: str) -> list[Found]:
        """Return the calls of these functions, by canonical dotted name."""
        return [each for name in names for each in self._by_name.get(name, ())]

    def methods(self, *names: str) -> Iterator[Found]:
        """Return the calls of methods with these names, on any object."""
        for module in self.modules:
            for call in module.calls:
                if isinstance(call.func, ast.Attribute) and call.func.attr in names:
                    yield module, call

    @cached_property
    def runs(self) -> bool:
        """Whether a module does more than define things when it is run."""
        return any(_acts(module) for module in self.modules)

    @cached_property
    def uses_keras(self) -> bool:
        return any(module.imports_any(*_FRAMEWORKS) for module in self.modules)

    @cached_property
    def on_tensorflow(self) -> bool:
        """Whether TensorFlow computes, rather than another backend of Keras."""
        others = [value for *_, value in self.variables("KERAS_BACKEND")]
        return self.uses_keras and not any("tensorflow" not in value for value in others if value)

    @cached_property
    def training(self) -> list[Found]:
        """Return where a Keras model is trained, in the order of modules and lines."""
        if not self.uses_keras:
            return []
        tapes = [each for each in self.calls("tensorflow.GradientTape") if not _by_fit(*each)]
        found = [each for each in self.methods(*_TRAINS) if _trains(*each)]
        return sorted([*found, *tapes], key=lambda each: (self.modules.index(each[0]), each[1].lineno))

    def variables(self, *names: str) -> Iterator[tuple[Module, ast.AST, str, str]]:
        """Yield (module, node, variable, value or "") of environment variables that are set; without names,
        all of them.
        """
        for found in self._variables:
            if not names or found[2] in names:
                yield found

    @cached_property
    def _variables(self) -> list[tuple[Module, ast.AST, str, str]]:
        return [(module, *found) for module in self.modules for found in _set_variables(module)]


def _acts(module: Module) -> bool:
    if module.snippet.fragment or "main" in module.functions:
        return True
    return any(_acting(module, statement) for statement in module.tree.body)


def _acting(module: Module, statement: ast.stmt) -> bool:
    """Whether a statement of a module does more than define, import, or name a value."""
    if isinstance(
        statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom
    ):
        return False
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Call)
    if isinstance(statement, ast.Try):
        return any(_acting(module, each) for each in statement.body)
    if isinstance(statement, ast.If):
        return "__name__" in ast.dump(statement.test) or any(_acting(module, e) for e in statement.body)
    if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
        return any(_of_module(module, c.func) for c in ast.walk(statement) if isinstance(c, ast.Call))
    return isinstance(statement, ast.For | ast.While | ast.With)


def _of_module(module: Module, function: ast.expr) -> bool:
    """Whether this is a function of this module, or a method of one of its objects."""
    if isinstance(function, ast.Name):
        return function.id in module.functions
    held = function.value if isinstance(function, ast.Attribute) else None
    return isinstance(held, ast.Name) and held.id not in module.aliases


def _by_fit(module: Module, call: ast.Call) -> bool:
    """Whether a gradient tape is in a model's `train_step`, which `fit` calls."""
    function = module.scope(call)
    return getattr(function, "name", "") in ("train_step", "test_step") and isinstance(
        module.parent(function), ast.ClassDef
    )


def _trains(module: Module, call: ast.Call) -> bool:
    assert isinstance(call.func, ast.Attribute)
    receiver = call.func.value
    if not (call.args or call.keywords):
        return False
    if call.func.attr != "fit" or is_model(module, receiver):
        return True
    value = module.value(receiver)
    known = module.called(value) or module.dotted(receiver)
    if known.startswith(_NOT_KERAS):
        return False
    return {"epochs", "validation_data", "batch_size", "steps_per_epoch"} & {
        k.arg for k in call.keywords
    } != set()


def _set_variables(module: Module) -> Iterator[tuple[ast.AST, str, str]]:
    for node in module.nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Subscript) and module.dotted(target.value) in (
                    "os.environ",
                    "environ",
                ):
                    for name in texts(module, target.slice):
                        yield node, name, _text(module, node.value)
                    yield from _from_dict(module, node, _looped_over(module, target.slice))
        elif isinstance(node, ast.AugAssign) and module.dotted(node.target) == "os.environ":
            yield from _from_dict(module, node, node.value)
        elif isinstance(node, ast.Call) and module.called(node) in ("os.environ.setdefault", "os.putenv"):
            for name in texts(module, argument(node, 0)):
                yield node, name, _text(module, argument(node, 1))
        elif isinstance(node, ast.Call) and module.called(node) == "os.environ.update":
            yield from _updated(module, node)


def _looped_over(module: Module, key: ast.AST) -> ast.AST | None:
    """Return the dictionary whose items a loop yields as `key`: `for key, value in FLAGS.items()`."""
    for loop in module.above(key):
        call = loop.iter if isinstance(loop, ast.For) else None
        if (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Attribute)
            and call.func.attr == "items"
            and isinstance(loop.target, ast.Tuple)  # type: ignore[attr-defined]
            and source(loop.target.elts[0]) == source(key)  # type: ignore[attr-defined]
        ):
            return call.func.value
    return None


def _updated(module: Module, call: ast.Call) -> Iterator[tuple[ast.AST, str, str]]:
    for keyword in call.keywords:
        if keyword.arg:
            yield call, keyword.arg, _text(module, keyword.value)
    yield from _from_dict(module, call, argument(call, 0))


def _from_dict(module: Module, place: ast.AST, node: ast.AST | None) -> Iterator[tuple[ast.AST, str, str]]:
    given = module.value(node)
    if isinstance(given, ast.Dict):
        for key, value in zip(given.keys, given.values, strict=True):
            for name in texts(module, key):
                yield place, name, _text(module, value)


def _text(module: Module, node: ast.AST | None) -> str:
    return next(iter(texts(module, node)), "")


# ---------------------------------------------------------------- which modules run together


def programs(modules: Sequence[Module]) -> list[Program]:
    """Group the modules by their imports of each other; a text without such imports is a separate program."""
    whole = [module for module in modules if not module.snippet.fragment]
    found = [Program([module]) for module in modules if module.snippet.fragment]
    group = list(range(len(whole)))
    places = {_name(module.snippet): number for number, module in enumerate(whole)}
    for number, module in enumerate(whole):
        for name in _local_names(module):
            other = places.get(name)
            if other is not None:
                group = [group[number] if each == group[other] else each for each in group]
    members = ([whole[n] for n in range(len(whole)) if group[n] == each] for each in dict.fromkeys(group))
    return [*found, *map(Program, members)]


def imports_of(name: str, text: str) -> list[str]:
    """Return the paths, without suffix and relative to a script's own folder, of the modules that it may
    import.
    """
    module = Module(Snippet(name, "python", text, ()))
    return sorted({each for each in _local_names(module) if not each.startswith("/")})


def _name(snippet: Snippet) -> str:
    path = PurePosixPath(snippet.path)
    plain = path.with_suffix("") if path.name != "__init__.py" else path.parent
    return str(plain)


def _local_names(module: Module) -> Iterator[str]:
    """Return the paths, without suffix, of the modules that may be imported."""
    path = PurePosixPath(module.snippet.path)
    for name in module.loaded:
        level = len(name) - len(name.lstrip("."))
        parts = [part for part in name.lstrip(".").split(".") if part]
        folders = [path.parent, *path.parent.parents] if not level else [_up(path.parent, level - 1)]
        yield from (str(folder.joinpath(*parts)) for folder in folders)


def _up(folder: PurePosixPath, levels: int) -> PurePosixPath:
    return folder.parents[levels - 1] if 0 < levels <= len(folder.parents) else folder
