"""ORC704: functions that current versions of Keras and NumPy no longer have."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from orchestrator.lint.datasets import is_model
from orchestrator.lint.module import Module
from orchestrator.lint.registry import module_check
from orchestrator.lint.rule import Hit, Rule, Severity, hit

REMOVED = Rule(
    "ORC704",
    "removed-api",
    Severity.WARNING,
    "a name that Keras or NumPy removed: fit_generator, predict_classes, Adam(lr=…), keras.utils.np_utils",
    "It works with an old version only: AttributeError or ImportError on a machine with a newer one.",
    "Use its replacement (fit, learning_rate=, keras.utils.to_categorical), or pin the old version.",
)

_METHODS = {
    "fit_generator": "fit",
    "evaluate_generator": "evaluate",
    "predict_generator": "predict",
    "predict_classes": "predict(…).argmax(-1)",
    "predict_proba": "predict",
}
_MODULES = re.compile(
    r"(tensorflow\.)?keras\.(utils\.(np_utils|generic_utils|training_utils|multi_gpu_model|vis_utils)|wrappers"
    r"|layers\.(normalization|advanced_activations|core|convolutional|recurrent|pooling|merge|embeddings|noise"
    r"|wrappers|experimental\.preprocessing|convolutional_recurrent|local)|legacy|engine|objectives|backend\.tensorflow_backend"
    r"|preprocessing\.image\.image_dataset_from_directory|optimizers\.experimental|feature_column|estimator)(\.|$)"
)
_RATES = {"lr": "learning_rate=", "decay": "a schedule"}
_NUMPY = {
    "float",
    "int",
    "object",
    "str",
    "complex",
    "float_",
    "NaN",
    "Inf",
    "product",
    "cumproduct",
    "unicode_",
}


@module_check(REMOVED)
def check_removed(module: Module) -> Iterator[Hit]:
    for statement in module.imports:
        found = next((name for name in _names(statement) if _MODULES.match(name)), None)
        if found:
            yield hit(REMOVED, module.snippet, statement, f"{found} was removed in Keras 3")
    for call in module.calls:
        yield from _called(module, call)
    for node in module.nodes:
        name = module.dotted(node) if isinstance(node, ast.Attribute) and node.attr in _NUMPY else ""
        if name.startswith("numpy.") and name.count(".") == 1:
            yield hit(REMOVED, module.snippet, node, f"{name} was removed in NumPy 2")


def _names(statement: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(statement, ast.Import):
        return [alias.name for alias in statement.names]
    base = statement.module or ""
    return [] if statement.level else [base, *(f"{base}.{alias.name}" for alias in statement.names)]


def _called(module: Module, call: ast.Call) -> Iterator[Hit]:
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
    if method in _METHODS and (method.endswith(("generator", "classes")) or is_model(module, receiver)):
        if module.imports_any("keras", "tensorflow", "tf_keras"):
            message = f"{method} was removed; use {_METHODS[method]}"
            yield hit(REMOVED, module.snippet, call, message)
    elif re.match(r"keras\.optimizers\.[A-Z]", module.called(call)):
        for keyword in call.keywords:
            if keyword.arg in _RATES:
                message = f"{keyword.arg}= is not accepted by Keras 3; use {_RATES[keyword.arg]}"
                yield hit(REMOVED, module.snippet, call, message)
