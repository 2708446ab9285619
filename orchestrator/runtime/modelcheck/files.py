"""What a file is, read from its bytes and not from its name alone. Loads nothing of the model."""

from __future__ import annotations

import hashlib
import importlib
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional, Tuple

from .explain import Refusal

_HDF5 = b"\x89HDF\r\n\x1a\n"
_LFS = b"version https://git-lfs"
_ZIP = b"PK\x03\x04"
_PICKLES = (".pkl", ".pickle", ".joblib", ".p", ".sav")
_TABLES = (".npz", ".npy")
_TEXTS = (".json", ".txt", ".vocab", ".tsv", ".csv")
_MODELS = (".keras", ".h5", ".hdf5", ".zip")


@dataclass(frozen=True)
class ModelFile:
    """`kind`: keras, h5, saved_model; weights, checkpoint; pickle, table, text; pointer or unknown.

    `saved_with` is the Keras version it names, "" if none. `modules` are those in which its own classes
    lie, as it says. `refusal` says why it cannot be loaded at all, where that is known without trying.
    """

    path: Path
    sha256: str
    kind: str
    saved_with: str = ""
    modules: Tuple[str, ...] = ()
    refusal: Optional[Refusal] = None

    @property
    def predicts(self) -> bool:
        """Whether it is a whole model, and not weights or what belongs to a model."""
        return self.kind in ("keras", "h5", "saved_model")


def identify(path: Path) -> ModelFile:
    """The file's kind, digest and version. Raises Refusal where it is not there or not readable.

    A TensorFlow checkpoint may be named by its prefix, as TensorFlow does: two files or more lie there.
    """
    try:
        parts = shards(path)
        if parts:
            return ModelFile(_prefix(path), _digest_of(parts), "checkpoint", refusal=_cut(parts))
        digest = _digest(path)
        if path.is_dir():
            return _folder(path, digest)
        with path.open("rb") as file:
            head = file.read(64)
    except OSError as error:
        raise Refusal(
            f"{path.name} cannot be read: {error.strerror}", "Check the path and its permissions."
        ) from error
    return _by_head(path, digest, head)


# ---------------------------------------------------------------- TensorFlow checkpoints


def _prefix(path: Path) -> Path:
    return path.with_suffix("") if path.suffix == ".index" else path


def shards(path: Path) -> Tuple[Path, ...]:
    """The files of the checkpoint with this prefix or .index file: index first, then the data."""
    prefix = _prefix(path)
    index = prefix.with_name(f"{prefix.name}.index")
    if path.is_dir() or not index.is_file():
        return ()
    return (index, *sorted(prefix.parent.glob(f"{prefix.name}.data-*-of-*")))


def _cut(parts: Tuple[Path, ...]) -> Optional[Refusal]:
    """Why the shards of a checkpoint are not all there; the names say how many there are."""
    data = [part.name for part in parts[1:]]
    wanted = int(data[0].rpartition("-of-")[2]) if data else 1
    if len(data) == wanted:
        return None
    return Refusal(
        f"the checkpoint has {len(data)} of its {wanted} data files",
        "Copy all files that begin with its name: .index and every .data-…",
    )


# ---------------------------------------------------------------- single files


def _by_head(path: Path, digest: str, head: bytes) -> ModelFile:
    if head.startswith(_LFS):
        refusal = Refusal(
            f"{path.name} is a git-lfs pointer, not the file itself", "Fetch the real file: git lfs pull."
        )
        return ModelFile(path, digest, "pointer", refusal=refusal)
    suffix = path.suffix.lower()
    if not head:
        return ModelFile(path, digest, "unknown", refusal=_broken(path, "empty"))
    if suffix in _TABLES or suffix in _PICKLES or suffix in _TEXTS:
        kind = "table" if suffix in _TABLES else "pickle" if suffix in _PICKLES else "text"
        return ModelFile(path, digest, kind)
    if head.startswith(_HDF5):
        return _hdf5(path, digest)
    if head.startswith(_ZIP):
        return _archive(path, digest)
    what = "neither a .keras archive nor an HDF5 file" if suffix in _MODELS else "no file of a known kind"
    return ModelFile(path, digest, "unknown", refusal=_broken(path, what))


def _archive(path: Path, digest: str) -> ModelFile:
    version, refusal = "", None
    modules: Tuple[str, ...] = ()
    try:
        with zipfile.ZipFile(path) as archive:
            bad = archive.testzip()
            if bad:
                refusal = _broken(path, f"damaged ({bad} in it has a wrong checksum)")
            elif "config.json" not in archive.namelist():
                refusal = Refusal(
                    f"{path.name} is a zip file without a Keras model", "Save with model.save('….keras')."
                )
            else:
                version = str(json.loads(archive.read("metadata.json")).get("keras_version", ""))
                modules = own_modules(json.loads(archive.read("config.json")))
    except (zipfile.BadZipFile, EOFError, OSError, ValueError, KeyError) as error:
        refusal = _broken(path, f"damaged or cut off ({error})")
    return ModelFile(path, digest, "keras", version, modules, refusal)


def own_modules(config: Any) -> Tuple[str, ...]:
    """The modules of a Keras configuration's classes that are not Keras' own, sorted."""
    found, todo = set(), [config]
    while todo:
        value = todo.pop()
        if isinstance(value, dict):
            name = value.get("module")
            if isinstance(name, str) and value.get("registered_name") and "class_name" in value:
                found.add(name)
            todo.extend(value.values())
        elif isinstance(value, list):
            todo.extend(value)
    kept = (name for name in found if name.split(".")[0] not in ("keras", "builtins", "__main__", "tf_keras"))
    return tuple(sorted(kept))


def _hdf5(path: Path, digest: str) -> ModelFile:
    """A whole model, or weights alone; without h5py the name tells."""
    try:
        with importlib.import_module("h5py").File(path, "r") as file:
            version = file.attrs.get("keras_version", "")
            whole = "model_config" in file.attrs
    except (ImportError, OSError):
        version, whole = "", not path.name.endswith(".weights.h5")
    text = version.decode() if isinstance(version, bytes) else str(version)
    return ModelFile(path, digest, "h5" if whole else "weights", text)


def _folder(path: Path, digest: str) -> ModelFile:
    if (path / "saved_model.pb").exists() or (path / "saved_model.pbtxt").exists():
        return ModelFile(path, digest, "saved_model")
    refusal = Refusal(
        f"{path.name} is a folder without a saved_model.pb", "Name the model file, or save the model again."
    )
    return ModelFile(path, digest, "folder", refusal=refusal)


def _broken(path: Path, what: str) -> Refusal:
    return Refusal(f"{path.name} is {what}", "Copy it again, and compare its sha256 with the original.")


# ---------------------------------------------------------------- digests


def _digest(path: Path) -> str:
    """SHA-256 of a file's content; of a folder, of its sorted relative paths and their digests."""
    if path.is_dir():
        return _joint((p.relative_to(path).as_posix(), _digest(p)) for p in path.rglob("*") if p.is_file())
    hasher = hashlib.sha256()
    with path.open("rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            hasher.update(block)
    return hasher.hexdigest()


def _digest_of(parts: Tuple[Path, ...]) -> str:
    return _joint((part.name, _digest(part)) for part in parts)


def _joint(pairs: Any) -> str:
    hasher = hashlib.sha256()
    for name, digest in sorted(pairs):
        hasher.update(f"{name}\0{digest}\n".encode())
    return hasher.hexdigest()
