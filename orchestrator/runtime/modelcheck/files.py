"""Identify a file by its bytes, not only by its name. Nothing of the model is loaded."""

from __future__ import annotations

import hashlib
import importlib
import json
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterable, Optional, Tuple

from .explain import Cause, Refusal
from .select import HEAD, MODELS, UNREAD, kind_of

_HDF5 = b"\x89HDF\r\n\x1a\n"
_LFS = b"version https://git-lfs"
_ZIP = b"PK\x03\x04"
_SMALL, _SPARSE, _DENSEST = 1 << 20, 1 << 30, 8
"""Maximum bytes of metadata.json; bytes that any archive may unpack to; above that, maximum ratio of unpacked
to packed size."""
_SAVE_AGAIN = "Save the model again with model.save('….keras')."


@dataclass(frozen=True)
class ModelFile:
    """`kind`: keras, h5, saved_model; weights, checkpoint; pickle, table, text; folder, pointer or unknown.

    `saved_with` is the Keras version that the file names, "" if none. `refusal` is the reason why it cannot
    be loaded, if that is known without trying.
    """

    path: Path
    sha256: str
    kind: str
    saved_with: str = ""
    refusal: Optional[Refusal] = None

    @property
    def predicts(self) -> bool:
        """Whether it is a complete model, rather than weights or an object that prepares input."""
        return self.kind in ("keras", "h5", "saved_model")


def identify(path: Path) -> ModelFile:
    """Return the file's kind, digest and version. Raises Refusal if it is missing, unreadable or a link.

    A TensorFlow checkpoint may be named by its prefix, as TensorFlow does; it consists of two or more files.
    """
    try:
        parts = shards(path)
        _refuse_links(parts or (path, *(path.rglob("*") if path.is_dir() else ())))
        if parts:
            return ModelFile(_prefix(path), _digest_of(parts), "checkpoint", refusal=_cut(parts))
        digest = _digest(path)
        if path.is_dir():
            return _folder(path, digest)
        with path.open("rb") as file:
            head = file.read(HEAD)
    except OSError as error:
        raise Refusal(
            f"{path.name} cannot be read: {error.strerror}", "Check the path and its permissions."
        ) from error
    return _by_head(path, digest, head)


def _refuse_links(paths: Iterable[Path]) -> None:
    """Refuse links: their target is not a file of the run. Raises Refusal."""
    for path in paths:
        if path.is_symlink():
            raise Refusal(
                f"{path.name} is a link", "Save the file itself below the outputs.", Cause.WOULD_USE_FILES
            )


# ---------------------------------------------------------------- TensorFlow checkpoints


def _prefix(path: Path) -> Path:
    return path.with_suffix("") if path.suffix == ".index" else path


def shards(path: Path) -> Tuple[Path, ...]:
    """Return the files of the checkpoint with this prefix or .index file: the index, then the data files; ()
    if there is no checkpoint."""
    prefix = _prefix(path)
    index = prefix.with_name(f"{prefix.name}.index")
    if path.is_dir() or not index.is_file():
        return ()
    return (index, *sorted(prefix.parent.glob(f"{prefix.name}.data-*-of-*")))


def _cut(parts: Tuple[Path, ...]) -> Optional[Refusal]:
    """Return a refusal if data files of a checkpoint are missing; their names say how many there should
    be."""
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
    kind = kind_of(path.name, lambda _: head)
    if kind in ("table", "pickle", "text"):
        return ModelFile(path, digest, kind)
    if kind == "unread":
        return ModelFile(path, digest, "unknown", refusal=_unread(UNREAD.get(suffix, "PyTorch")))
    if suffix == ".keras" and zipfile.is_zipfile(path):  # Keras decides so, whatever its first bytes are
        return _archive(path, digest)
    if head.startswith(_HDF5):
        return _hdf5(path, digest)
    if head.startswith(_ZIP):
        return _archive(path, digest)
    what = (
        "neither a .keras archive nor an HDF5 file"
        if suffix in (*MODELS, ".zip")
        else "no file of a known kind"
    )
    return ModelFile(path, digest, "unknown", refusal=_broken(path, what))


def _unread(what: str) -> Refusal:
    way_out = "Save the arrays with numpy.savez as well: these are compared."
    return Refusal(f"a file of {what}", way_out, Cause.NO_READER)


def _archive(path: Path, digest: str) -> ModelFile:
    version, refusal = "", None
    try:
        with zipfile.ZipFile(path) as archive:
            refusal = _unsafe(path, archive)
            bad = None if refusal else archive.testzip()
            if bad:
                refusal = _broken(path, f"damaged ({bad} in it has a wrong checksum)")
            elif not refusal and "config.json" not in archive.namelist():
                refusal = Refusal(
                    f"{path.name} is a zip file without a Keras model", "Save with model.save('….keras')."
                )
            elif not refusal:
                version = str(json.loads(archive.read("metadata.json")).get("keras_version", ""))
    except (zipfile.BadZipFile, EOFError, OSError, ValueError, KeyError) as error:
        refusal = _broken(path, f"damaged or cut off ({error})")
    return ModelFile(path, digest, "keras", version, refusal)


def _unsafe(path: Path, archive: zipfile.ZipFile) -> Optional[Refusal]:
    """Return why an archive must not be unpacked: weights that would be unpickled, names that lead out of it,
    or content far larger than the file. None if it may be."""
    members = archive.infolist()
    if any(member.filename.endswith(".npz") for member in members):
        return Refusal("weights that older versions of Keras unpickle", _SAVE_AGAIN, Cause.WOULD_RUN_CODE)
    for member in members:
        if member.filename.startswith(("/", "\\")) or ".." in re.split(r"[/\\]", member.filename):
            return Refusal(
                f"{member.filename[:200]} in it leads out of the archive", _SAVE_AGAIN, Cause.WOULD_USE_FILES
            )
    total = sum(member.file_size for member in members)
    small = next((m for m in members if m.filename == "metadata.json" and m.file_size > _SMALL), None)
    if small or total > max(_SPARSE, _DENSEST * path.stat().st_size):
        return Refusal(f"it unpacks to {total >> 20:,} MiB", _SAVE_AGAIN, Cause.TOO_LARGE)
    return None


def _hdf5(path: Path, digest: str) -> ModelFile:
    """Distinguish a complete model from weights alone; without h5py, by the name."""
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
    """Return the SHA-256 of a file's content; for a folder, of its sorted relative paths and their
    digests."""
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
