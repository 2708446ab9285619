"""Let a pipeline read copies of its files, by exchanging names in the arguments of its sources."""

# Close to the kernel: paths are strings here.
# ruff: noqa: PTH100

from __future__ import annotations

import os
from typing import Any, Dict, Optional, Tuple

from .calls import READERS, After, Call, Change, call_of


def to_copies(there: Dict[str, str]) -> Tuple[Change, After]:
    """Return a change, for `calls.rebuilt`, that makes sources read the copies (original -> copy)."""
    names = {os.fsencode(path): os.fsencode(copy) for path, copy in there.items()}

    def change(_dataset: Any, call: Call) -> Optional[Call]:
        if call.name not in ("from_tensor_slices", "from_tensors", *READERS):
            return None
        renamed = _renamed((call.args, call.kwargs), names)
        return None if renamed is None else call._replace(args=renamed[0], kwargs=renamed[1])

    def after(old: Any, new: Any) -> Any:
        call = call_of(old)
        return _map_names(new, names) if call is not None and call.name == "list_files" else new

    return change, after


def _renamed(value: Any, names: Dict[bytes, bytes]) -> Any:
    """Return arguments with exchanged file names, including constants and arrays of strings; None if there
    was none.
    """
    import numpy as np
    import tensorflow as tf

    found = [0]

    def text(item: Any) -> Any:
        raw = os.fsencode(os.path.abspath(os.fsdecode(item)))
        if raw not in names:
            return item
        found[0] += 1
        return names[raw] if isinstance(item, bytes) else os.fsdecode(names[raw])

    def one(item: Any) -> Any:
        if isinstance(item, (str, bytes)):
            return text(item)
        if hasattr(item, "__fspath__"):
            return text(os.fspath(item))
        if isinstance(item, dict):
            return {key: one(part) for key, part in item.items()}
        if isinstance(item, (list, tuple)) and not hasattr(item, "_fields"):
            return type(item)(one(part) for part in item)
        if tf.is_tensor(item) and getattr(item, "dtype", None) == tf.string and hasattr(item, "numpy"):
            array = np.asarray(item.numpy(), dtype=object)
            return tf.constant(np.vectorize(text, otypes=[object])(array))
        if isinstance(item, np.ndarray) and item.dtype.kind in "USO" and item.size:
            return np.vectorize(text, otypes=[object])(item)
        return item

    made = one(value)
    return made if found[0] else None


def _map_names(dataset: Any, names: Dict[bytes, bytes]) -> Any:
    """Return the same elements with the names of the copies, in the order of the originals."""
    import tensorflow as tf

    keys = tf.constant(list(names))
    values = tf.constant(list(names.values()))
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), b"")
    return dataset.map(table.lookup)
