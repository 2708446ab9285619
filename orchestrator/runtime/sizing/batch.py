"""Make a batch of another size from one that the program created: its rows repeated, or fewer of them.

The memory that a step allocates depends on the shapes of its batch, not on its numbers.
"""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Tuple


class NoBatch(Exception):
    """The reason why no other batch can be made; the text is a sentence."""


def leaves(structure: Any) -> List[Any]:
    """Return arrays and tensors in tuples, lists and dicts, in order; nothing else."""
    if isinstance(structure, dict):
        return [leaf for item in structure.values() for leaf in leaves(item)]
    if isinstance(structure, (list, tuple)):
        return [leaf for item in structure for leaf in leaves(item)]
    return [structure] if _is_array(structure) else []


def rows_of(structure: Any) -> Optional[int]:
    """Return the number of examples in a batch: the first dimension of its largest array. None if it has
    none.
    """
    arrays = [leaf for leaf in leaves(structure) if len(leaf.shape) >= 1 and leaf.shape[0]]
    if not arrays:
        return None
    return int(max(arrays, key=bytes_of_array).shape[0])


def bytes_of(structure: Any) -> int:
    """Return the bytes of all its arrays."""
    return sum(bytes_of_array(leaf) for leaf in leaves(structure))


def bytes_of_array(array: Any) -> int:
    size = getattr(array.dtype, "itemsize", None) or getattr(array.dtype, "size", None) or 1
    for extent in array.shape:
        size *= int(extent or 0)
    return int(size)


def resized(structure: Any, rows: int) -> Any:
    """Return the batch with `rows` examples. Arrays with another first dimension than the largest array stay
    unchanged.

    Raises NoBatch if there is nothing to resize, or the batch contains other objects than plain arrays.
    """
    own = rows_of(structure)
    if own is None:
        raise NoBatch("what a step is given holds no batch of arrays")
    return mapped(structure, lambda leaf: _of_rows(leaf, own, rows))


def mapped(structure: Any, change: Callable[[Any], Any]) -> Any:
    """Return the structure with each array changed."""
    if isinstance(structure, dict):
        return type(structure)({key: mapped(item, change) for key, item in structure.items()})
    if isinstance(structure, (list, tuple)):
        items = [mapped(item, change) for item in structure]
        return type(structure)(*items) if hasattr(structure, "_fields") else type(structure)(items)
    return change(structure) if _is_array(structure) else structure


def feed(like: Any, batch: Any, times: int) -> Any:
    """Return a replacement for the iterator `like`: this batch, `times` times."""
    import tensorflow as tf

    if not is_tensorflows(like):
        return iter([batch] * times)
    return iter(tf.data.Dataset.from_tensors(batch).repeat(times))


def is_tensorflows(iterator: Any) -> bool:
    """Whether it is tf.data's iterator, rather than one of Python's."""
    from tensorflow.python.data.ops import iterator_ops

    return isinstance(iterator, iterator_ops.IteratorBase)


def _is_array(value: Any) -> bool:
    import tensorflow as tf

    if isinstance(value, tf.Variable):
        return False
    if isinstance(value, (tf.SparseTensor, tf.RaggedTensor)):
        raise NoBatch("its batches are sparse or ragged tensors, of which no larger ones can be made")
    return tf.is_tensor(value) or (hasattr(value, "shape") and hasattr(value, "__array__"))


def _of_rows(array: Any, own: int, rows: int) -> Any:
    import numpy as np
    import tensorflow as tf

    if not array.shape or array.shape[0] != own or rows == own:
        return array
    whole, rest = divmod(rows, own)
    if not tf.is_tensor(array):
        array = np.asarray(array)
        return np.concatenate([array] * whole + [array[:rest]])
    parts: Tuple[Any, ...] = (*[array] * whole, array[:rest])
    with tf.device("CPU:0"):
        return tf.concat(parts, 0)
