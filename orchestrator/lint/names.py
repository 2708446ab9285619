"""Resolve a name in a program to the library function that it means, however it was imported."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import lru_cache

_SAME = (
    ("tensorflow.compat.v2.", "tensorflow."),
    ("tensorflow.python.keras.", "keras."),
    ("tensorflow.keras.", "keras."),
    ("tf_keras.", "keras."),
    ("keras._tf_keras.keras.", "keras."),
    ("keras.src.", "keras."),
    ("keras.api.", "keras."),
    ("tensorflow.config.experimental.", "tensorflow.config."),
    ("tensorflow.data.experimental.AUTOTUNE", "tensorflow.data.AUTOTUNE"),
    ("keras.preprocessing.image_dataset_from_directory", "keras.utils.image_dataset_from_directory"),
    ("keras.preprocessing.text_dataset_from_directory", "keras.utils.text_dataset_from_directory"),
    ("keras.saving.load_model", "keras.models.load_model"),
    ("keras.saving.save_model", "keras.models.save_model"),
    ("keras.config.enable_op_determinism", "tensorflow.config.enable_op_determinism"),
    ("keras.engine.sequential.Sequential", "keras.Sequential"),
    ("keras.models.Sequential", "keras.Sequential"),
    ("keras.models.Model", "keras.Model"),
)
_WHOLE = {"tensorflow.keras": "keras", "tf_keras": "keras", "tensorflow.compat.v2": "tensorflow"}


@lru_cache(maxsize=20_000)
def canonical(name: str) -> str:
    """Return one spelling for the several names that a library gives to one thing."""
    for _ in range(3):
        name = _WHOLE.get(name, name)
        found = next((pair for pair in _SAME if (name + ".").startswith(pair[0]) or name == pair[0]), None)
        if found is None:
            break
        name = found[1] + name[len(found[0]) :]
    return name


def imported(statements: Iterable[ast.Import | ast.ImportFrom]) -> dict[str, str]:
    """Return local name -> canonical dotted name of an import. Relative ones begin with a dot."""
    found: dict[str, str] = {}
    for statement in statements:
        for alias in statement.names:
            if isinstance(statement, ast.Import):
                local = alias.asname or alias.name.split(".")[0]
                target = alias.name if alias.asname else alias.name.split(".")[0]
            else:
                local = alias.asname or alias.name
                target = "." * statement.level + f"{statement.module or ''}.{alias.name}".lstrip(".")
            found[local] = canonical(target)
    return found


def modules_of(statement: ast.Import | ast.ImportFrom) -> list[str]:
    """Return the modules that a statement may load, with leading dots if it is relative."""
    if isinstance(statement, ast.Import):
        return [alias.name for alias in statement.names]
    base = "." * statement.level + (statement.module or "")
    joint = base if base.endswith(".") else f"{base}."
    return [base, *(f"{joint}{alias.name}" for alias in statement.names)]
