"""What a plan imposes on real TensorFlow, whatever the program says: one import, one fork for each."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from orchestrator.replay.fork_server import ForkServer
from orchestrator.session.project import Project
from orchestrator.session.session import local_agent

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

PROGRAM = """
import json, locale, os, platform, random, socket, sys, time
import keras, numpy as np, tensorflow as tf
from tensorflow.python.framework import config

tf.config.threading.set_intra_op_parallelism_threads(2)
tf.config.experimental.enable_tensor_float_32_execution(True)
keras.mixed_precision.set_global_policy("float32")
keras.backend.set_floatx("float32")
if "SEED" in os.environ:
    keras.utils.set_random_seed(int(os.environ["SEED"]))
model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
model.compile("sgd", "mse", run_eagerly=False)
print("FACTS", json.dumps({
    "intra_op": tf.config.threading.get_intra_op_parallelism_threads(),
    "deterministic": config.is_op_determinism_enabled(),
    "tf32": tf.config.experimental.tensor_float_32_execution_enabled(),
    "policy": keras.config.dtype_policy().name,
    "eager": model.run_eagerly,
    "floatx": keras.config.floatx(),
    "cpus": len(os.sched_getaffinity(0)),
    "weights": np.asarray(model.weights[0], "float64").tolist(),
    "random": [random.random(), float(np.random.rand())],
    "generators": [random.Random().random(), float(np.random.default_rng().random())],
    "listed": os.listdir("data"),
    "hour": time.localtime(0).tm_hour,
    "cwd": os.getcwd(),
    "host": sorted({socket.gethostname(), platform.node(), os.uname().nodename}),
    "variable": os.environ.get("VARIABLE"),
}))
"""


class Bench:
    """Runs PROGRAM in forks of one fork server."""

    def __init__(self, folder: Path, server: ForkServer, hook: Mapping[str, str]) -> None:
        self._folder = folder
        self._server = server
        self._env = hook
        self._count = 0

    def facts(self, plan: Mapping[str, Any] | None = None, **variables: str) -> dict[str, Any]:
        """What the program saw."""
        self._count += 1
        log = self._folder / f"{self._count}.log"
        env = {**self._env, **variables, "ORCH_IMPOSE": json.dumps(plan or {})}
        request = {
            "program": "train.py",
            "module": False,
            "arguments": [],
            "cwd": str(self._folder),
            "env": env,
            "moved": [],
            "log": str(log),
        }
        ended = self._server.run(request, time.monotonic() + 240)
        said = log.read_text()
        assert ended["code"] == 0, said
        line = next(line for line in said.splitlines() if line.startswith("FACTS "))
        found: dict[str, Any] = json.loads(line.removeprefix("FACTS "))
        return found


@pytest.fixture(scope="module")
def bench(tf_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("imposed")
    (folder / "train.py").write_text(PROGRAM)
    for name in ("b", "a", "c"):
        (folder / "data").mkdir(exist_ok=True)
        (folder / "data" / name).touch()
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "TF_CPP_MIN_LOG_LEVEL": "3", "LANG": "C.UTF-8"}
    agent = local_agent(Project(folder))
    server = ForkServer(agent, str(tf_python), ["numpy", "tensorflow", "keras"], env, folder / "diary")
    yield Bench(folder, server, env)
    server.close()


@pytest.fixture(scope="module")
def usual(bench: Bench) -> dict[str, Any]:
    """Without a plan."""
    return bench.facts()


@pytest.mark.parametrize(
    ("plan", "name", "value"),
    [
        ({"intra_op": 1}, "intra_op", 1),
        ({"deterministic": True}, "deterministic", True),
        ({"tf32": False}, "tf32", False),
        ({"policy": "mixed_bfloat16"}, "policy", "mixed_bfloat16"),
        ({"floatx": "float64"}, "floatx", "float64"),
        ({"compile": {"run_eagerly": True}}, "eager", True),
        ({"cpus": 1}, "cpus", 1),
        ({"host": "elsewhere"}, "host", ["elsewhere"]),
        ({"listing": "sorted"}, "listed", ["a", "b", "c"]),
        ({"listing": ["c", "a", "b"]}, "listed", ["c", "a", "b"]),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_the_plan_holds_and_nothing_else_changes(
    bench: Bench, usual: dict[str, Any], plan: dict[str, Any], name: str, value: Any
) -> None:
    found = bench.facts(plan)
    assert found[name] == value
    for other in {"intra_op", "deterministic", "tf32", "policy", "eager", "cpus", "host", "listed"} - {name}:
        assert found[other] == usual[other] or other == "listed", other


def test_variables_are_those_of_the_fork(bench: Bench, usual: dict[str, Any]) -> None:
    found = bench.facts(VARIABLE="theirs", TZ="JST-9")
    assert (found["variable"], found["hour"]) == ("theirs", 9)
    assert (usual["variable"], usual["hour"]) == (None, 0)


def test_seeds_fix_what_nothing_seeds(bench: Bench, usual: dict[str, Any]) -> None:
    one, two = bench.facts({"seed": 1}), bench.facts({"seed": 1})
    assert (one["weights"], one["random"]) == (two["weights"], two["random"])
    assert one["weights"] != usual["weights"] and one["random"] != usual["random"]
    assert one["generators"] != two["generators"]


def test_the_programs_own_seed_is_heard_unless_it_is_forced(bench: Bench) -> None:
    heard = [bench.facts({"seed": 1}, SEED=seed)["weights"] for seed in ("5", "6")]
    forced = [bench.facts({"seed": 1, "seed_forced": True}, SEED=seed)["weights"] for seed in ("5", "6")]
    assert heard[0] != heard[1] and forced[0] == forced[1]


def test_generators_without_a_seed_get_one_and_are_named_by_line(bench: Bench, tmp_path: Path) -> None:
    notes = tmp_path / "unseeded"
    plan = {"generators": True, "unseeded": str(notes)}
    one, two = bench.facts(plan), bench.facts(plan)
    assert one["generators"] == two["generators"] and one["random"] != two["random"]
    line = 1 + PROGRAM.splitlines().index(next(x for x in PROGRAM.splitlines() if "Random()" in x))
    assert set(notes.read_text().splitlines()) == {
        f"random.Random\ttrain.py:{line}",
        f"numpy.random.default_rng\ttrain.py:{line}",
    }
