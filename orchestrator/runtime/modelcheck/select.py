"""Select the files of a run that are models, weights, or prepare their input: by suffix, else by first
bytes."""

from __future__ import annotations

import re
from typing import Callable, Iterable, List, Set

HEAD = 512
"""Bytes at the start of a file that identify its format."""
MODELS = (".keras", ".h5", ".hdf5")
TABLES = (".npz", ".npy")
TEXTS = (".json", ".txt", ".vocab", ".tsv", ".csv")
UNREAD = {
    ".pt": "PyTorch",
    ".pth": "PyTorch",
    ".ckpt": "PyTorch",
    ".safetensors": "safetensors",
    ".onnx": "ONNX",
    ".tflite": "TensorFlow Lite",
    ".msgpack": "MessagePack",
}
"""Formats of models and weights that the check cannot read; such files are reported as not checked."""
_PICKLE = re.compile(r"\.(?:pkl|pickle|joblib|p|sav|dill|cloudpickle)(?:\.(?:z|gz|bz2|xz|lzma|lz4))?\Z")
_PREPARING = re.compile(
    r"scal|vocab|token|label|class|encod|normal|standard|mean|std|stat|preproc|categor|bins|feature|impute",
    re.IGNORECASE,
)
_NAMED_TEXTS = (".json", ".txt", ".vocab")
_NUMPY, _HDF5, _ZIP = b"\x93NUMPY", b"\x89HDF\r\n\x1a\n", b"PK\x03\x04"
_PICKLED = re.compile(rb"\x80(?:[\x02\x03][\]}c(]|[\x04\x05]\x95)")


def checkable(paths: Iterable[str], head: Callable[[str], bytes] = lambda _: b"") -> List[str]:
    """Return those of the relative paths (with slashes) to check, sorted, complete models first.

    A SavedModel is named by its folder, a TensorFlow checkpoint by its prefix. Text files are included if
    their name says that they prepare data. A file without a known suffix is classified by `head`, which
    returns its first bytes.
    """
    every = sorted(set(paths))
    folders = {p[: -len("/saved_model.pb")] for p in every if p.endswith("/saved_model.pb")}
    single = [path for path in every if not _inside(path, folders)]
    checkpoints = [path[: -len(".index")] for path in single if path.endswith(".index")]
    parts = tuple(f"{prefix}.data-" for prefix in checkpoints)
    kinds = {path: kind_of(path, head) for path in single if not path.startswith(parts)}
    models = [path for path, kind in kinds.items() if kind == "model"]
    weights = [path for path in models if path.endswith(".weights.h5")]
    others = [path for path, kind in kinds.items() if kind not in ("", "model", "text") or _prepares(path)]
    return [*sorted([*folders, *(p for p in models if p not in weights)]), *weights, *checkpoints, *others]


def kind_of(path: str, head: Callable[[str], bytes]) -> str:
    """Return model, pickle, table, text or unread; "" if it is no format of models, weights, or input
    preparation."""
    name = path.rpartition("/")[2].lower()
    suffix = name[name.rfind(".") :] if "." in name else ""
    by_suffix = {**dict.fromkeys(MODELS, "model"), **dict.fromkeys(TABLES, "table")}
    by_suffix.update({**dict.fromkeys(TEXTS, "text"), **dict.fromkeys(UNREAD, "unread")})
    if suffix in by_suffix:
        return by_suffix[suffix]
    return "pickle" if _PICKLE.search(name) else "" if suffix == ".index" else kind_by_head(head(path))


def kind_by_head(head: bytes) -> str:
    """Return the same by the first bytes of a file; an archive is classified by the first name in it."""
    if head.startswith(_NUMPY):
        return "table"
    if head.startswith(_HDF5):
        return "model"
    if head.startswith(_ZIP):
        first = head[30 : 30 + int.from_bytes(head[26:28], "little")]
        if first.endswith(b"/data.pkl"):
            return "unread"
        return "table" if first.endswith(b".npy") else "model" if first in _OF_KERAS else ""
    return "pickle" if _PICKLED.match(head) else ""


_OF_KERAS = (b"metadata.json", b"config.json", b"model.weights.h5")


def _inside(path: str, folders: Set[str]) -> bool:
    return any(path.startswith(f"{folder}/") for folder in folders)


def _prepares(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name.lower().endswith(_NAMED_TEXTS) and _PREPARING.search(name) is not None
