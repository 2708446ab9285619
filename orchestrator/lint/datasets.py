"""Find which expressions are tf.data datasets, and which objects are Keras models."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from orchestrator.lint.module import Module

_SOURCES = ("tensorflow.data.", "tensorflow_datasets.load")
_FROM_DIRECTORY = re.compile(
    r"keras\.(utils|preprocessing)\.\w+_from_(directory|array)$|.*\.make_csv_dataset$"
)
_ONLY_DATASETS = {
    "interleave",
    "prefetch",
    "from_tensor_slices",
    "flat_map",
    "padded_batch",
    "as_numpy_iterator",
}
_PASSING = {
    "map",
    "batch",
    "shuffle",
    "repeat",
    "cache",
    "take",
    "skip",
    "filter",
    "unbatch",
    "shard",
    "apply",
}
_NAME = re.compile(r"(^|_)(ds|dset|dataset|datasets)\d*($|_)|dataset$", re.IGNORECASE)
_MODELS = re.compile(
    r"keras\.(Sequential|Model|Functional|models\.(load_model|clone_model|model_from_\w+)|applications\.[\w.]+)$"
)
_MODEL_NAME = re.compile(
    r"(^|_)(model|net|network|autoencoder|generator|discriminator|classifier|cnn|rnn|lstm)\d*($|_)"
)
_NOT_KERAS = {
    "sklearn",
    "xgboost",
    "lightgbm",
    "catboost",
    "statsmodels",
    "scipy",
    "torch",
    "prophet",
    "gensim",
    "hmmlearn",
}
_DEPTH = 6


def is_dataset(module: Module, node: ast.AST | None, depth: int = _DEPTH) -> bool:
    """Whether `node` is a tf.data.Dataset, as far as the text shows."""
    for _ in range(200):  # a chain of methods of any length
        if not isinstance(node, ast.Call):
            break
        name = module.called(node)
        if name.startswith(_SOURCES) or _FROM_DIRECTORY.match(name):
            return True
        if not isinstance(node.func, ast.Attribute):
            return depth > 0 and _returned(module, node, depth)
        if node.func.attr in _ONLY_DATASETS or _of_records(node):
            return True
        if node.func.attr not in _PASSING:
            return False
        node = node.func.value
    if isinstance(node, ast.Attribute):
        return _NAME.search(node.attr) is not None
    if not isinstance(node, ast.Name) or depth <= 0:
        return False
    if _NAME.search(node.id):
        return True
    return any(
        is_dataset(module, value, depth - 1) for value in module.bound(node)[:4] if not _about(value, node)
    )


def _of_records(call: ast.Call) -> bool:
    """Whether a call is like `x.shuffle(1000)`: only datasets have a `shuffle` with a number of records."""
    if not (isinstance(call.func, ast.Attribute) and call.func.attr == "shuffle"):
        return False
    first = call.args[0] if call.args else None
    named = any(keyword.arg in ("buffer_size", "reshuffle_each_iteration") for keyword in call.keywords)
    return named or (isinstance(first, ast.Constant) and type(first.value) is int)


def _about(value: ast.AST, name: ast.Name) -> bool:
    """Whether an assignment shows what a variable is; `ds = ds.batch(8)` does not."""
    return isinstance(value, ast.Name) and value.id == name.id


def _returned(module: Module, call: ast.Call, depth: int) -> bool:
    function = module.functions.get(call.func.id) if isinstance(call.func, ast.Name) else None
    if function is None:
        return False
    values = [node.value for node in ast.walk(function) if isinstance(node, ast.Return) and node.value]
    return any(is_dataset(module, value, depth - 2) for value in values[:4])


def dataset_calls(module: Module, *methods: str) -> Iterator[ast.Call]:
    """Return the calls of these methods on datasets."""
    for call in module.calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr in methods and is_dataset(module, call):
            yield call


def chain(call: ast.AST) -> Iterator[ast.Call]:
    """Return a call and the calls on whose result it was made, outermost first."""
    while isinstance(call, ast.Call):
        yield call
        call = call.func.value if isinstance(call.func, ast.Attribute) else call.func


def is_model(module: Module, node: ast.AST | None) -> bool:
    """Whether `node` is a Keras model, as far as the text shows."""
    if isinstance(node, ast.Name) and _MODEL_NAME.search(node.id):
        bound = module.bound(node)
        return not any(_foreign(module, value) for value in bound)
    if isinstance(node, ast.Attribute):
        return _MODEL_NAME.search(node.attr) is not None
    return makes_model(module, module.value(node))


def _foreign(module: Module, value: ast.AST) -> bool:
    """Whether something is created by an imported library other than Keras."""
    root = module.called(value).split(".")[0]
    imported = {name.split(".")[0] for name in module.aliases.values() if not name.startswith(".")}
    return root in imported & _NOT_KERAS


def makes_model(module: Module, value: ast.AST | None) -> bool:
    """Whether an expression creates a Keras model: by Keras, a function here, or a subclass here."""
    if not isinstance(value, ast.Call):
        return False
    if _MODELS.match(module.called(value)):
        return True
    name = value.func.id if isinstance(value.func, ast.Name) else ""
    function = module.functions.get(name)
    if function is not None:
        returned = (node.value for node in ast.walk(function) if isinstance(node, ast.Return))
        made = (module.value(node) for node in returned if node is not None)
        return any(isinstance(each, ast.Call) and bool(_MODELS.match(module.called(each))) for each in made)
    bases = module.classes[name].bases if name in module.classes else []
    return any(module.dotted(base) in ("keras.Model", "keras.Sequential") for base in bases)
