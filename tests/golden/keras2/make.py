"""Writes the files beside this one, into the folder given: TensorFlow 2.15 (Keras 2.15), scikit-learn 1.3.

expected.json is what check-model printed for them under those versions, in that folder.
"""

import pickle
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf
from sklearn.preprocessing import StandardScaler

out = Path(sys.argv[1])
out.mkdir(parents=True, exist_ok=True)
layers = tf.keras.layers
tf.keras.utils.set_random_seed(5)

model = tf.keras.Sequential(
    [layers.Input((6,)), layers.Dense(5, activation="relu"), layers.Dense(3, activation="softmax")]
)
model.save(out / "model.keras")
model.save(out / "model.h5")
model.save(out / "saved", save_format="tf")
model.save_weights(out / "model.weights.h5")
model.save_weights(str(out / "ckpt" / "weights"))
(out / "ckpt" / "weights.json").write_text(model.to_json() + "\n")

gone = tf.keras.Sequential([layers.Input((6,)), layers.ThresholdedReLU(0.5), layers.Dense(2)])
gone.save(out / "gone.h5")

rows = (np.arange(60, dtype=np.float64).reshape(10, 6) * 7) % 11
with open(out / "scaler.pkl", "wb") as file:
    pickle.dump(StandardScaler().fit(rows), file)
