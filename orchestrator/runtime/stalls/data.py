"""Datasets of batches in memory, and the structure of a batch."""

from __future__ import annotations

from typing import Any, Optional


def primed(dataset: Any, batches: int) -> None:
    """Fill the dataset's cache, and read one element further, which completes it."""
    for _ in dataset.take(batches):
        pass


def repeated(like: Any, batch: Any) -> Any:
    """Return a dataset that repeats one batch, with the element spec of `like`, so that no step is traced
    again.
    """
    from tensorflow.python.data.ops import dataset_ops
    from tensorflow.python.data.util import structure
    from tensorflow.python.ops import gen_dataset_ops

    spec = like.element_spec
    parts = structure.to_tensor_list(spec, batch)
    shapes = structure.get_flat_tensor_shapes(spec)
    variant = gen_dataset_ops.tensor_dataset(parts, output_shapes=shapes)
    return lean(dataset_ops._VariantDataset(variant, spec)).repeat()


def lean(dataset: Any) -> Any:
    """Disable optimisation of a dataset: it would take longer than a step."""
    import tensorflow as tf

    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    return dataset.with_options(options)


def size(batch: Any) -> int:
    import tensorflow as tf

    parts = tf.nest.flatten(batch, expand_composites=True) if batch is not None else []
    return int(sum(part.dtype.size * int(tf.size(part)) for part in parts))


def leading(batch: Any) -> Optional[int]:
    import tensorflow as tf

    parts = tf.nest.flatten(batch, expand_composites=True) if batch is not None else []
    shapes = [part.shape for part in parts if part.shape.rank]
    return int(shapes[0][0]) if shapes else None
