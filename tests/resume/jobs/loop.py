"""A loop of its own with Adam, dropout and tf.train.CheckpointManager; `WITHOUT` names what is left out."""

# ruff: noqa

import os

import keras
import numpy as np
import tensorflow as tf

WITHOUT = os.environ.get("JOB_WITHOUT", "").split(",")
WITH = os.environ.get("JOB_WITH", "").split(",")
keras.utils.set_random_seed(7)
tf.config.experimental.enable_op_determinism()
data = np.random.RandomState(0)
x, y = data.randn(48, 6).astype("float32"), data.randn(48, 1).astype("float32")

drop = keras.layers.Dropout(0.5, seed=3)
layers = [keras.layers.Dense(8, activation="relu")]
layers += [keras.layers.BatchNormalization()] if "statistics" in WITH else []
layers += [drop] if "dropout" in WITH else []
model = keras.Sequential([keras.layers.Input((6,)), *layers, keras.layers.Dense(1)])
rate = keras.optimizers.schedules.ExponentialDecay(0.05, 2, 0.5) if "schedule" in WITH else 0.01
kind = keras.optimizers.SGD if "schedule" in WITH else keras.optimizers.Adam
average = {"use_ema": True, "ema_momentum": 0.5, "ema_overwrite_frequency": 3} if "average" in WITH else {}
optimizer = kind(rate, **average)
if "scale" in WITH:
    optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=64.0, dynamic_growth_steps=3)
optimizer.build(model.trainable_variables)
step = tf.Variable(0, dtype=tf.int64)

held = {"step": step, "weights": model.trainable_variables}
if "optimizer" not in WITHOUT:
    left = {"rate": "learning_rate", "scale": "dynamic_scale", "average": "average"}
    left = [word for name, word in left.items() if name in WITHOUT]
    held["optimizer"] = [v for v in optimizer.variables if not any(word in v.path for word in left)]
if "statistics" not in WITHOUT:
    held["rest"] = [v for v in model.non_trainable_variables if "seed" not in v.path]
if "dropout" not in WITHOUT and "dropout" in WITH:
    held["dropout"] = drop.seed_generator.state


def tensors(value):
    raw = lambda v: getattr(v, "_value", v)
    return [raw(v) for v in value] if isinstance(value, list) else raw(value)


checkpoint = tf.train.Checkpoint(**{name: tensors(value) for name, value in held.items()})
manager = tf.train.CheckpointManager(checkpoint, os.environ.get("JOB_FOLDER", "ckpt"), max_to_keep=2)
if "resume" not in WITHOUT:
    manager.restore_or_initialize()
begin = 0 if "counter" in WITHOUT else int(step)


def order(epoch):
    return np.random.permutation(48) if "seed" in WITHOUT else np.random.RandomState(epoch).permutation(48)


if "order" in WITHOUT:
    np.random.seed(1)
    order = lambda epoch: np.random.permutation(48)
if "nothing" in WITHOUT:
    np.random.seed()
    order = lambda epoch: np.random.permutation(48)

for number in range(begin, 16):
    if number % 4 == 0 or number == begin:
        rows = order(number // 4)
    at = number % 4 if "position" not in WITHOUT else (number - begin) % 4
    picked = rows[at * 12 : at * 12 + 12]
    with tf.GradientTape() as tape:
        loss = keras.ops.mean((model(tf.constant(x[picked]), training=True) - y[picked]) ** 2)
        loss = optimizer.scale_loss(loss) if "scale" in WITH else loss
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
    step.assign_add(1)
    if "halving" in WITH:
        optimizer.learning_rate.assign(optimizer.learning_rate * 0.5)
    if number % 3 == 2 and "checkpoint" not in WITHOUT:
        manager.save()
print("loss", float(loss))
