"""Observe files that C libraries read by themselves, without Python's open, and close before a step is
complete.

They are noted when the program passes their names to a function in READERS. What other C libraries open and
close between two steps is not observed.
"""

from __future__ import annotations

import sys
from typing import Any, Dict, Tuple

from .calls import before, reads, writes
from .files import Files
from .imports import ImportHook

READERS: Dict[str, Tuple[Tuple[str, int, str], ...]] = {
    "cv2": (("imread", 0, "filename"), ("imreadmulti", 0, "filename")),
    "h5py": (("File.__init__", 1, "name"),),
    "polars": tuple(
        (f"{verb}_{kind}", 0, "source")
        for verb in ("read", "scan")
        for kind in ("csv", "parquet", "ipc", "ndjson")
    ),
    "pyarrow.csv": (("read_csv", 0, "input_file"),),
    "pyarrow.feather": (("read_table", 0, "source"),),
    "pyarrow.parquet": (
        ("read_table", 0, "source"),
        ("ParquetFile.__init__", 1, "source"),
        ("ParquetDataset.__init__", 1, "path_or_paths"),
    ),
    "soundfile": (("SoundFile.__init__", 1, "file"),),
}
"""Module -> (function or method, position and name of its argument that is a file or a list of files)."""


def watch_readers(files: Files) -> None:
    """Note in `files` the names that are passed to these readers from now on, once their modules are
    imported."""

    def hear(given: Any) -> None:
        files.named(given if isinstance(given, (list, tuple)) else [given])

    def watch(module: Any) -> None:
        is_hdf5 = module.__name__ == "h5py"
        for path, place, name in READERS[module.__name__]:
            owner, _, method = path.rpartition(".")
            target = getattr(module, owner, None) if owner else module
            if target is not None and hasattr(target, method):
                before(target, method, place, name, hear, unless=writes if is_hdf5 else None)
        if is_hdf5:
            before(module.File, "__init__", 1, "name", lambda given: files.made([given]), unless=reads)

    announcer = ImportHook(READERS, watch)
    announcer.install()
    for known in READERS:
        if known in sys.modules:
            announcer.imported(sys.modules[known])
