"""What a model file is, read from its bytes and not from its name alone. Loads nothing."""

from __future__ import annotations

import hashlib
import importlib
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Optional, Tuple

from .explain import Refusal

_HDF5 = b"\x89HDF\r\n\x1a\n"
_LFS = b"version https://git-lfs"


@dataclass(frozen=True)
class ModelFile:
    """`kind`: keras, h5, saved_model or weights. `saved_with` is the Keras version it names, "" if none.

    `refusal` says why it cannot be loaded at all, where that is known without trying.
    """

    path: Path
    sha256: str
    kind: str
    saved_with: str = ""
    refusal: Optional[Refusal] = None


def identify(path: Path) -> ModelFile:
    """The file's kind, digest and version. Raises Refusal where it is not there or not readable."""
    try:
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


def _by_head(path: Path, digest: str, head: bytes) -> ModelFile:
    if head.startswith(_LFS):
        refusal = Refusal(
            f"{path.name} is a git-lfs pointer, not the model itself", "Fetch the real file: git lfs pull."
        )
        return ModelFile(path, digest, "pointer", "", refusal)
    if path.name.endswith(".weights.h5") or path.name.endswith(".weights.json"):
        refusal = Refusal(
            f"{path.name} holds weights only, without the model's architecture",
            "Build the model in code and call model.load_weights(), or save it whole with model.save().",
        )
        return ModelFile(path, digest, "weights", "", refusal)
    if head.startswith(b"PK\x03\x04"):
        return _archive(path, digest)
    if head.startswith(_HDF5):
        return ModelFile(path, digest, "h5", _h5_version(path))
    what = "empty" if not head else "neither a .keras archive nor an HDF5 file"
    return ModelFile(path, digest, "unknown", "", _broken(path, what))


def _archive(path: Path, digest: str) -> ModelFile:
    version, refusal = "", None
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
    except (zipfile.BadZipFile, EOFError, OSError, ValueError, KeyError) as error:
        refusal = _broken(path, f"damaged or cut off ({error})")
    return ModelFile(path, digest, "keras", version, refusal)


def _h5_version(path: Path) -> str:
    try:
        with importlib.import_module("h5py").File(path, "r") as file:
            return str(file.attrs.get("keras_version", ""))
    except (ImportError, OSError):
        return ""


def _folder(path: Path, digest: str) -> ModelFile:
    if (path / "saved_model.pb").exists() or (path / "saved_model.pbtxt").exists():
        return ModelFile(path, digest, "saved_model")
    refusal = Refusal(
        f"{path.name} is a folder without a saved_model.pb", "Name the model file, or save the model again."
    )
    return ModelFile(path, digest, "folder", "", refusal)


def _broken(path: Path, what: str) -> Refusal:
    return Refusal(f"{path.name} is {what}", "Copy it again, and compare its sha256 with the original.")


def _digest(path: Path) -> str:
    """SHA-256 of a file's content; of a folder, of its sorted relative paths and their digests."""
    hasher = hashlib.sha256()
    if path.is_dir():
        for name, digest in sorted(_members(path)):
            hasher.update(f"{name}\0{digest}\n".encode())
        return hasher.hexdigest()
    with path.open("rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            hasher.update(block)
    return hasher.hexdigest()


def _members(path: Path) -> Tuple[Tuple[str, str], ...]:
    return tuple((p.relative_to(path).as_posix(), _digest(p)) for p in path.rglob("*") if p.is_file())
