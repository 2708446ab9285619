"""ORC711-716: models written in one format and read in another, or changed after they were written."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TypeGuard

from orchestrator.lint.datasets import is_model, makes_model
from orchestrator.lint.module import Module
from orchestrator.lint.registry import module_check
from orchestrator.lint.rule import Hit, Rule, Severity, hit
from orchestrator.lint.values import UNKNOWN, argument, shown, source, texts

LOAD = Rule(
    "ORC711",
    "legacy-load",
    Severity.WARNING,
    "load_model of a folder (SavedModel) or an .h5 file",
    "Keras 3 refuses a folder (ValueError), and an .h5 of Keras 2 may not deserialize.",
    "Save as .keras and load that; read a SavedModel with keras.layers.TFSMLayer, or pin tf-keras.",
)
SAVE = Rule(
    "ORC712",
    "legacy-save",
    Severity.WARNING,
    "a model saved without .keras, or weights without .weights.h5",
    "Keras 3 refuses a folder; an .h5 loses custom objects and may not load under another version.",
    "model.save('model.keras'); model.export('folder') for serving; save_weights('x.weights.h5').",
)
CHANGED = Rule(
    "ORC713",
    "changed-after-save",
    Severity.WARNING,
    "the model is trained or changed after it was saved, and not saved again",
    "The saved file is not the model that was evaluated.",
    "Save last.",
)
LAMBDA = Rule(
    "ORC714",
    "lambda-layer",
    Severity.WARNING,
    "a Lambda layer with a Python function",
    "It is saved as bytecode: load_model refuses it by default, and another Python version cannot run it.",
    "Write a layer class, registered with @keras.saving.register_keras_serializable().",
)
PICKLED = Rule(
    "ORC715",
    "pickled-model",
    Severity.WARNING,
    "a Keras model in a pickle",
    "It loads only with the same versions.",
    "model.save('model.keras').",
)

_H5 = re.compile(r"\.(h5|hdf5)$")
_LOADS = ("keras.models.load_model",)
_SAVERS = ("tensorflow.saved_model.save", "keras.models.save_model")
_VARIABLES = {"trainable_variables", "trainable_weights", "variables", "weights"}
_SAVES = {"save", "export", "save_weights"}
_PARTS = {*_VARIABLES, "layers", "get_layer"}
_CHANGES = {
    "fit",
    "fit_generator",
    "train_on_batch",
    "set_weights",
    "load_weights",
    "add",
    "pop",
    "compile_from_config",
}


@module_check(LOAD)
def check_load(module: Module) -> Iterator[Hit]:
    for call in module.calls:
        if module.called(call) not in _LOADS:
            continue
        for text in texts(module, argument(call, 0, "filepath")):
            form = _form(text)
            if form:
                yield hit(LOAD, module.snippet, call, f"{shown(text)!r} is {form}")
                break


def _form(text: str) -> str:
    """Return the old format of a model's path; "" for .keras, or if the suffix is not known."""
    last = text.rstrip("/").rpartition("/")[2]
    if not text or text.endswith(UNKNOWN) or last.endswith((".keras", ".zip")):
        return ""
    if _H5.search(last):
        return "a legacy HDF5 file"
    suffix = last.rpartition(".")[2] if "." in last.strip(".") else ""
    return (
        "a folder (SavedModel)"
        if not re.fullmatch(r"[A-Za-z]\w{0,5}", suffix) or suffix in ("tf", "pb")
        else ""
    )


@module_check(SAVE, PICKLED)
def check_save(module: Module) -> Iterator[Hit]:
    for call in module.calls:
        name = module.called(call)
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
        if (method == "save" and is_model(module, receiver)) or name == "keras.models.save_model":
            position = 0 if method == "save" and name != "keras.models.save_model" else 1
            yield from _saved(module, call, argument(call, position, "filepath"))
        elif method == "save_weights" and is_model(module, receiver):
            found = [
                t
                for t in texts(module, argument(call, 0, "filepath"))
                if not t.endswith((".weights.h5", UNKNOWN))
            ]
            if found:
                yield hit(
                    SAVE,
                    module.snippet,
                    call,
                    f"Keras 3 refuses {shown(found[0])!r}: it must end in .weights.h5",
                )
        elif name == "keras.callbacks.ModelCheckpoint":
            yield from _checkpoint(module, call)
        elif (
            (
                name in ("pickle.dump", "pickle.dumps", "joblib.dump")
                and call.args
                and is_model(module, call.args[0])
            )
            and module.imports_any("keras", "tensorflow", "tf_keras")
            and (not module.imports_any("sklearn") or makes_model(module, module.value(call.args[0])))
        ):
            yield hit(PICKLED, module.snippet, call, f"{source(call.args[0])} is pickled")


def _saved(module: Module, call: ast.Call, path: ast.AST | None) -> Iterator[Hit]:
    for text in texts(module, path):
        form = _form(text)
        if form:
            yield hit(SAVE, module.snippet, call, f"{shown(text)!r} is {form}")
            return
    if any("h5" in t or t == "tf" for t in texts(module, argument(call, -1, "save_format"))):
        yield hit(SAVE, module.snippet, call, "save_format is not an argument of Keras 3")


def _checkpoint(module: Module, call: ast.Call) -> Iterator[Hit]:
    weights = argument(call, -1, "save_weights_only")
    only = isinstance(weights, ast.Constant) and weights.value is True
    for text in texts(module, argument(call, 0, "filepath")):
        if only and not text.endswith((".weights.h5", UNKNOWN)):
            yield hit(
                SAVE, module.snippet, call, f"Keras 3 refuses {shown(text)!r}: it must end in .weights.h5"
            )
        elif not only and weights is None and _form(text):
            yield hit(SAVE, module.snippet, call, f"{shown(text)!r} is {_form(text)}")


@module_check(CHANGED)
def check_changed(module: Module) -> Iterator[Hit]:
    """Find, in each sequence of statements, a save that is followed by a change of the model and no further
    save.
    """
    for node in module.nodes:
        for name in ("body", "orelse", "finalbody"):
            body = getattr(node, name, None)
            if isinstance(body, list) and body and isinstance(body[0], ast.stmt):
                yield from _sequence(module, body)


def _sequence(module: Module, body: list[ast.stmt]) -> Iterator[Hit]:
    saved: set[str] = set()
    changed: dict[str, ast.AST] = {}
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            continue
        for name, node, saves in _events(module, statement):
            if saves:
                saved.add(name)
                changed.pop(name, None)
            elif name in saved:
                changed.setdefault(name, node)
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                saved.discard(source(target))
    for name, node in changed.items():
        yield hit(CHANGED, module.snippet, node, f"{name} is changed after it was saved")


def _events(module: Module, statement: ast.stmt) -> Iterator[tuple[str, ast.AST, bool]]:
    """Yield (model, place, whether it is saved there), in order."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Call) and module.called(node) in _SAVERS and node.args:
            if is_model(module, node.args[0]):
                yield source(node.args[0]), node, True
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            receiver = node.func.value
            if node.func.attr in _SAVES and is_model(module, receiver):
                yield source(receiver), node, True
            elif node.func.attr in _CHANGES and is_model(module, receiver):
                yield source(receiver), node, False
            elif (owner := _owner(module, statement, node)) is not None:
                yield source(owner), node, False
        elif _sets_trainable(node) and is_model(module, node.value):
            yield source(node.value), node, False
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield from _by_function(module, node)


def _by_function(module: Module, call: ast.Call) -> Iterator[tuple[str, ast.AST, bool]]:
    """Yield, for each model that a function of this file gets, its last action on it: a change or a save."""
    function = module.functions.get(call.func.id) if isinstance(call.func, ast.Name) else None
    if function is None or any(isinstance(each, ast.Starred) for each in call.args):
        return
    for given, parameter in zip(call.args, function.args.args, strict=False):
        if is_model(module, given):
            ends = [saves for node in ast.walk(function) for saves in _done_to(parameter.arg, node)]
            if ends:
                yield source(given), call, any(ends)


def _done_to(name: str, node: ast.AST) -> Iterator[bool]:
    """Yield True if a node saves the model of that name, False if it changes it; nothing otherwise."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if source(node.func.value) == name and node.func.attr in _SAVES:
            yield True
        elif source(node.func.value) == name and node.func.attr in _CHANGES:
            yield False
    elif _sets_trainable(node) and source(node.value) == name:
        yield False


def _owner(module: Module, statement: ast.stmt, call: ast.Call) -> ast.AST | None:
    """Return the model of which `call` changes a part: a layer's weights, a variable, or all by an
    optimizer.
    """
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if method == "apply_gradients":
        parts: list[ast.AST] = [n for a in call.args for n in ast.walk(a) if isinstance(n, ast.Attribute)]
        parts = [n.value for n in parts if isinstance(n, ast.Attribute) and n.attr in _VARIABLES]
        return next((each for each in parts if is_model(module, each)), None)
    if method not in ("set_weights", "assign", "assign_add", "assign_sub"):
        return None
    node: ast.AST = call.func.value  # type: ignore[attr-defined]
    if isinstance(node, ast.Name) and isinstance(statement, ast.For) and source(statement.target) == node.id:
        node = statement.iter
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        if isinstance(node, ast.Attribute) and node.attr in _PARTS and is_model(module, node.value):
            return node.value
        node = node.func if isinstance(node, ast.Call) else node.value
    return None


def _sets_trainable(node: ast.AST) -> TypeGuard[ast.Attribute]:
    return isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr == "trainable"


@module_check(LAMBDA)
def check_lambda(module: Module) -> Iterator[Hit]:
    for call in module.calls:
        if module.called(call) == "keras.layers.Lambda":
            yield hit(LAMBDA, module.snippet, call, "a Lambda layer cannot be loaded safely after saving")
