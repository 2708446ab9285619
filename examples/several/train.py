"""Train one small network on several machines at once, or in one process at the same global batch.

Without the variable TF_CONFIG this is one process. With it, this process is one worker of those that the
variable lists, and each takes its share of every batch. The examples of a step are the same either way, so
that the weights are too, up to the order in which gradients are summed. A run that is interrupted goes on
from its last checkpoint and ends with the weights of one that was not, bit for bit.
"""

import argparse
import hashlib
import json
import os
import tempfile
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

SEED = 20
EXAMPLES, FEATURES, CLASSES = 4096, 16, 4


def rank() -> int:
    """This worker's number, as TF_CONFIG has it; 0 for the chief, and for a single process."""
    return int(json.loads(os.environ.get("TF_CONFIG") or "{}").get("task", {}).get("index", 0))


def strategy_of_this_run() -> tf.distribute.Strategy:
    """One replica for each worker that TF_CONFIG lists; TensorFlow's default without it."""
    return (
        tf.distribute.MultiWorkerMirroredStrategy()
        if os.environ.get("TF_CONFIG")
        else tf.distribute.get_strategy()
    )


def examples() -> tuple[np.ndarray, np.ndarray]:
    """Points around one centre for each class: float32 [EXAMPLES, FEATURES], int64 [EXAMPLES]."""
    random = np.random.RandomState(SEED)
    centres = random.normal(size=(CLASSES, FEATURES))
    labels = random.randint(CLASSES, size=EXAMPLES)
    points = centres[labels] + random.normal(scale=1.5, size=(EXAMPLES, FEATURES))
    return points.astype(np.float32), labels.astype(np.int64)


def batches(first: int, steps: int, size: int) -> tf.data.Dataset:
    """The batches of the steps `first` to `steps`. Each epoch has its own order, which the seed decides."""
    points, labels = examples()
    epochs = -(-steps * size // EXAMPLES)
    order = np.concatenate(
        [np.random.RandomState(SEED + epoch).permutation(EXAMPLES) for epoch in range(epochs)]
    )
    chosen = order[first * size : steps * size]
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    data = tf.data.Dataset.from_tensor_slices((points[chosen], labels[chosen]))
    return data.batch(size, drop_remainder=True).with_options(options)


def network() -> keras.Model:
    """Points [batch, FEATURES] -> logits [batch, CLASSES]. No dropout or batch normalisation: what these do
    depends on how a batch is divided.
    """
    return keras.Sequential(
        [
            keras.Input((FEATURES,)),
            keras.layers.Dense(32, activation="relu", name="hidden"),
            keras.layers.Dense(CLASSES, name="classes"),
        ],
        name="several",
    )


def step_function(
    strategy: tf.distribute.Strategy, model: keras.Model, optimizer: keras.Optimizer, size: int
):
    """Return a function that trains on one global batch of `size` examples and returns its mean loss.

    Each worker divides by the global size, not by that of its share, for gradients are summed over workers.
    """
    per_example = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

    def replica_step(points: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            losses = per_example(labels, model(points, training=True))
            loss = tf.nn.compute_average_loss(losses, global_batch_size=size)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    @tf.function
    def step(points: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        return strategy.reduce(
            tf.distribute.ReduceOp.SUM, strategy.run(replica_step, args=(points, labels)), axis=None
        )

    return step


def share_from_chief(strategy: tf.distribute.Strategy, variables: list) -> None:
    """Give all workers the chief's values, to the bit: the chief's machine alone may have the checkpoint.

    Nobody returns before the chief called it too.
    """

    def from_chief(value: tf.Tensor) -> tf.Tensor:
        bits = tf.bitcast(value, tf.int32) if value.dtype == tf.float32 else tf.identity(value)
        mine = bits if rank() == 0 else tf.zeros_like(bits)
        total = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, mine)
        return tf.bitcast(total, value.dtype) if value.dtype == tf.float32 else total

    @tf.function
    def all_from_chief(values: list) -> list:
        return [strategy.run(from_chief, args=(value,)) for value in values]

    values = [tf.convert_to_tensor(variable) for variable in variables]
    for variable, value in zip(variables, all_from_chief(values), strict=True):
        variable.assign(value)


def digest(model: keras.Model) -> str:
    """sha256 of all weights."""
    return hashlib.sha256(b"".join(weight.tobytes() for weight in model.get_weights())).hexdigest()


def train(options: argparse.Namespace, scratch: Path) -> None:
    strategy = strategy_of_this_run()
    with strategy.scope():
        model = network()
        optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
        optimizer.build(model.trainable_variables)
        done = tf.Variable(0, dtype=tf.int64, trainable=False, name="done")
    folder = options.output / "checkpoints"
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, done=done)
    manager = tf.train.CheckpointManager(checkpoint, str(folder if rank() == 0 else scratch), max_to_keep=3)
    checkpoint.restore(manager.latest_checkpoint)
    if strategy.num_replicas_in_sync > 1:
        share_from_chief(strategy, [*model.variables, *optimizer.variables, done])
    first = int(done.numpy())
    print(f"Worker {rank()} of {strategy.num_replicas_in_sync} begins after step {first}", flush=True)

    step = step_function(strategy, model, optimizer, options.batch_size)
    loss = float("nan")
    data = strategy.experimental_distribute_dataset(batches(first, options.steps, options.batch_size))
    for number, (points, labels) in enumerate(data, first + 1):
        loss = float(step(points, labels))
        if number % options.every == 0 or number == options.steps:
            done.assign(number)
            manager.save(
                checkpoint_number=number
            )  # every worker takes part; the chief's is the one that counts
            print(f"Step {number}: loss {loss:.4f}", flush=True)

    if rank() == 0:
        options.output.mkdir(parents=True, exist_ok=True)
        model.save(options.output / "model.keras")
        metrics = {"loss": loss, "steps": options.steps}
        (options.output / "metrics.json").write_text(json.dumps(metrics, indent=2) + "\n", encoding="utf-8")
    print(f"Weights {digest(model)}", flush=True)
    if strategy.num_replicas_in_sync > 1:
        share_from_chief(strategy, [done])  # the others stay until the chief has written its results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("out"), help="folder for the results")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument(
        "--batch-size", type=int, default=64, help="examples of one step, of all workers together"
    )
    parser.add_argument("--every", type=int, default=20, help="steps between checkpoints")
    options = parser.parse_args()
    keras.utils.set_random_seed(SEED)
    tf.config.experimental.enable_op_determinism()
    with tempfile.TemporaryDirectory() as scratch:
        train(options, Path(scratch))


if __name__ == "__main__":
    main()
