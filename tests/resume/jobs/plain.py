"""NumPy alone, pickled; `WITHOUT` names what is left out."""

# ruff: noqa

import os
import pickle
import random

import numpy as np

WITHOUT = os.environ.get("JOB_WITHOUT", "").split(",")
WITH = os.environ.get("JOB_WITH", "").split(",")
random.seed(5)
np.random.seed(5)
rng = np.random.default_rng(3)
x = np.random.default_rng(0).normal(size=(40, 4))
y = x @ np.array([1.0, -2.0, 0.5, 3.0])
state = {"epoch": 0, "w": np.zeros(4), "m": np.zeros(4), "rng": rng.bit_generator.state}
if os.path.exists("model.pkl") and "resume" not in WITHOUT:
    with open("model.pkl", "rb") as file:
        state.update(pickle.load(file))
    if "rng" not in WITHOUT:
        rng.bit_generator.state = state["rng"]
    if "momentum" in WITHOUT:
        state["m"] = np.zeros(4)
for epoch in range(state["epoch"], 6):
    rows = rng.permutation(40)
    if "python" in WITH:
        random.shuffle(rows)
    if "global" in WITH:
        rows = np.random.permutation(rows)
    for row in rows:
        gradient = (x[row] @ state["w"] - y[row]) * x[row]
        state["m"] = 0.9 * state["m"] + gradient
        state["w"] = state["w"] - 0.01 * state["m"]
    state.update(epoch=epoch + 1, rng=rng.bit_generator.state)
    with open("model.tmp.pkl", "wb") as file:
        pickle.dump(state, file)
    os.replace("model.tmp.pkl", "model.pkl")
    print(epoch, float(((x @ state["w"] - y) ** 2).mean()))
np.save("weights.npy", state["w"])
