"""Detect HDF5 files that take content from other files: external links, external and virtual datasets."""

from __future__ import annotations

import importlib
import io
import zipfile
from pathlib import Path
from typing import Any, Set

from .explain import Cause, Refusal

_WEIGHTS = "model.weights.h5"


def check_links(path: Path) -> None:
    """Raise Refusal if an HDF5 file, or the one in a .keras archive, takes content from another file."""
    h5py: Any = importlib.import_module("h5py")
    if path.suffix != ".keras" or not zipfile.is_zipfile(path):
        with h5py.File(path, "r") as file:
            _check(h5py, file)
        return
    with zipfile.ZipFile(path) as archive:
        if _WEIGHTS in archive.namelist():
            with h5py.File(io.BytesIO(archive.read(_WEIGHTS)), "r") as file:
                _check(h5py, file)


def _check(h5py: Any, top: Any) -> None:
    """Visit every group once, since links can form cycles."""
    seen: Set[int] = set()
    todo = [top]
    while todo:
        group = todo.pop()
        place = h5py.h5o.get_info(group.id).addr
        if place in seen:
            continue
        seen.add(place)
        for name in group:
            link = group.get(name, getlink=True)
            if isinstance(link, h5py.ExternalLink):
                raise _elsewhere(f"{name} in it is a link to {link.filename}")
            if isinstance(link, h5py.SoftLink):
                continue
            item = group[name]
            if isinstance(item, h5py.Group):
                todo.append(item)
            elif isinstance(item, h5py.Dataset) and (item.external or item.is_virtual):
                raise _elsewhere(f"{name} in it has its content in another file")


def _elsewhere(what: str) -> Refusal:
    return Refusal(what, "Save the model with its weights in one file.", Cause.WOULD_USE_FILES)
