"""Whether a Python file trains something when it is started, judged by its source."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from orchestrator.model.syntax import tree_of

_FRAMEWORKS = frozenset(
    (
        "catboost", "fastai", "flax", "jax", "keras", "lightgbm", "lightning", "mxnet", "optax", "paddle",
        "pytorch_lightning", "sklearn", "statsmodels", "tensorflow", "tf_keras", "torch", "transformers",
        "xgboost",
    )
)  # fmt: skip
"""Modules with which models are trained."""

_ACTS = frozenset(
    (
        "apply_gradients", "backward", "fit", "fit_generator", "minimize", "partial_fit", "train",
        "train_on_batch",
    )
)  # fmt: skip
"""Methods with which frameworks train a model, or do one step."""
_FIT = frozenset(("fit",))
"""The method that means training in a file without a framework, too."""

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def trains_when_started(code: str) -> bool:
    """Whether the file's own statements train a model, or call a function of the file that does.

    A main guard does not matter: what is below it runs when the file is started.
    """
    try:
        tree = tree_of(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    acts = _ACTS if _imports_framework(tree) else _FIT
    functions = {node.name: node for node in tree.body if isinstance(node, _Function)}
    reached: set[str] = set()
    waiting: list[ast.AST] = [node for node in tree.body if not isinstance(node, _Function | ast.ClassDef)]
    while waiting:
        called = list(_calls(waiting.pop()))
        if any(isinstance(each, ast.Attribute) and each.attr in acts for each in called):
            return True
        names = {each.id for each in called if isinstance(each, ast.Name)} & functions.keys()
        waiting += [functions[name] for name in names - reached]
        reached |= names
    return False


def _imports_framework(tree: ast.Module) -> bool:
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    froms = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    names += [node.module for node in froms if node.module and not node.level]
    return not _FRAMEWORKS.isdisjoint(name.partition(".")[0] for name in names)


def _calls(node: ast.AST) -> Iterator[ast.expr]:
    """Yield what is called below a node."""
    return (each.func for each in ast.walk(node) if isinstance(each, ast.Call))
