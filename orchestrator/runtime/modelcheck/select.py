"""Which files of a run are models, weights, or what prepares their input."""

from __future__ import annotations

import re
from typing import Iterable, List, Set

_MODELS = (".keras", ".h5", ".hdf5")
_PICKLES = (".pkl", ".pickle", ".joblib")
_PREPARING = re.compile(
    r"scal|vocab|token|label|class|encod|normal|standard|mean|std|stat|preproc|categor|bins|feature|impute",
    re.IGNORECASE,
)
_DATA = (".json", ".txt", ".npz", ".npy", ".vocab")


def checkable(paths: Iterable[str]) -> List[str]:
    """Of relative paths with slashes, those to check, sorted: whole models first.

    A SavedModel is named by its folder, a TensorFlow checkpoint by its prefix. Tables and texts are
    taken where their name says that they prepare data.
    """
    every = sorted(set(paths))
    folders = {p[: -len("/saved_model.pb")] for p in every if p.endswith("/saved_model.pb")}
    single = [path for path in every if not _inside(path, folders)]
    models = [path for path in single if path.endswith(_MODELS)]
    checkpoints = [path[: -len(".index")] for path in single if path.endswith(".index")]
    others = [path for path in single if path.endswith(_PICKLES) or _prepares(path)]
    whole = sorted([*folders, *(path for path in models if not path.endswith(".weights.h5"))])
    weights = [path for path in models if path.endswith(".weights.h5")]
    return [*whole, *weights, *checkpoints, *others]


def _inside(path: str, folders: Set[str]) -> bool:
    return any(path.startswith(f"{folder}/") for folder in folders)


def _prepares(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name.endswith(_DATA) and _PREPARING.search(name) is not None
