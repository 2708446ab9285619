"""`fit` with callbacks of Keras; `WITHOUT` names what is left out."""

# ruff: noqa

import glob
import os
import re

import keras
import numpy as np

WITHOUT = os.environ.get("JOB_WITHOUT", "").split(",")
WITH = os.environ.get("JOB_WITH", "").split(",")
keras.utils.set_random_seed(7)
data = np.random.RandomState(0)
x, y = data.randn(48, 6).astype("float32"), data.randn(48, 1).astype("float32")
model = keras.Sequential(
    [keras.layers.Input((6,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)]
)
average = {"use_ema": True, "ema_momentum": 0.5} if "average" in WITH else {}
model.compile(keras.optimizers.Adam(0.01, **average), "mse")
callbacks, begin = [], 0
if "backup" in WITH:
    callbacks.append(keras.callbacks.BackupAndRestore("backup"))
elif "weights" in WITHOUT:
    callbacks.append(keras.callbacks.ModelCheckpoint("ckpt/{epoch:02d}.weights.h5", save_weights_only=True))
    found = sorted(glob.glob("ckpt/*.weights.h5"))
    if found:
        model.load_weights(found[-1])
        model.optimizer.build(model.trainable_variables)
        begin = int(re.findall(r"\d+", found[-1])[0])
        reset = model.optimizer.variables
        for variable in reset:
            if variable.path.rpartition("/")[2] != "learning_rate":
                variable.assign(keras.ops.zeros_like(variable))
else:
    callbacks.append(keras.callbacks.ModelCheckpoint("ckpt/{epoch:02d}.keras"))
    found = sorted(glob.glob("ckpt/*.keras"))
    if found:
        model = keras.models.load_model(found[-1])
        begin = 0 if "epoch" in WITHOUT else int(re.findall(r"\d+", found[-1])[0])
if "patience" in WITH:
    callbacks.append(keras.callbacks.EarlyStopping("loss", patience=2, min_delta=10.0, start_from_epoch=1))
if "best" in WITH:
    callbacks.append(
        keras.callbacks.ModelCheckpoint(
            "best.weights.h5", "loss", save_best_only=True, save_weights_only=True, mode="max"
        )
    )
if "shuffle" in WITH:
    shuffled = {"shuffle": True}
else:
    shuffled = {"shuffle": False}
model.fit(
    x,
    y,
    batch_size=12,
    epochs=4 if "patience" not in WITH else 12,
    initial_epoch=begin,
    callbacks=callbacks,
    verbose=0,
    **shuffled,
)
model.save_weights("final.weights.h5")
