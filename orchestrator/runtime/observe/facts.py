"""What acts on a run beside its data: versions, threads, policy, devices, environment, code, arguments.

environment.json, written after the first step and again after the last observed one (null: not readable):

    python, platform {system, machine, libc}, versions {module: version}
    cpu          {count: usable processors, installed, affinity: [number…], flags: [instruction set…], model}
    argv         [argument…] without the program, which is `script`; `program` {name, sha256}
    environment  {variable: value}, those of acting.acts; `set_late`: those set after TensorFlow's import
    modules      {path: sha256} of the project's own imported modules
    host         {name of the computer, asked: whether those modules seem to ask for it}
    files        {list: [{name, path, bytes, changed, sha256, whole, way, made}…] in the order of first
                 opening, left_out}: see files.Files.gather. Compare by `name`; `made` ones the program wrote
                 itself
    rng          {python, numpy, tensorflow_seed, tensorflow_operations, tensorflow_generator, keras_seed,
                 keras_generator}: states before the first step, see rng.states. No proof of a difference
    locale       {categories {LC_CTYPE…}, decimal_point, preferred_encoding, filesystem_encoding, utf8_mode}
    timezone     {TZ, names: [standard, summer], utc_offsets: [January, July] in seconds}
    hashing      {randomized, seed: PYTHONHASHSEED or "random", sample: hash("orch")}
    folder       {case_sensitive}
    tensorflow   {intra_op_threads, inter_op_threads: as configured, 0 for default; deterministic_ops, onednn,
                 tf32, devices, jit, soft_placement, functions_eager, build}
    threads      {intra, inter}: as TensorFlow resolves them from settings, environment and processors
    strategy     {class, replicas} of tf.distribute
    worker       {rank, world} of TF_CONFIG; {} for a process that is no worker
    datasets     [{deterministic, autotune, threads, intra_op_threads, auto_shard}…] of iterated datasets
    keras        {module, backend, policy, floatx, image_data_format}
    models       [{name, jit_compile, run_eagerly, steps_per_execution}…] as resolved for training
    compiled     [{name, loss, loss_weights, metrics, weighted_metrics}…]; losses [{class, config}…] called
    optimizers   [{class, config}…]
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional

from ..acting import acting
from . import rng
from .files import Files
from .hostname import host
from .kerases import steps_of_a_call
from .project import project_modules, script_facts, sha256
from .surroundings import cpu_count, reading, surroundings, worker

MOST_DATASETS = 8
"""Maximum number of iterated datasets whose options are kept."""


class Facts:
    """Collect facts during a run; `gather()` reads the rest when the first step is complete."""

    def __init__(self, tf: Any, files: Files) -> None:
        self._tf = tf  # None where Keras is on another backend
        self._files = files
        self._keras: Any = None
        self._models: List[Dict[str, Any]] = []
        self._compiled: List[Dict[str, Any]] = []
        self._losses: List[Any] = []
        self._datasets: List[Dict[str, Any]] = []
        self._optimizers: Dict[int, Dict[str, Any]] = {}
        self._rng: Optional[Dict[str, Any]] = None
        self._keras_settings: Optional[Dict[str, Any]] = None
        self._strategy: Dict[str, Any] = {}
        self._early = set(acting(os.environ))

    def set_keras(self, keras: Any) -> None:
        """Note the Keras that the script uses."""
        self._keras = keras

    def add_model(self, model: Any) -> None:
        """Note how a compiled model runs its steps."""
        entry = {
            "name": str(model.name),
            "jit_compile": bool(getattr(model, "jit_compile", False)),  # tf-keras 2 leaves it None
            "run_eagerly": bool(getattr(model, "run_eagerly", False)),
            "steps_per_execution": steps_of_a_call(model),
        }
        if entry not in self._models:
            self._models.append(entry)
            self._compiled.append({"name": str(model.name), **_compiled(model)})

    def add_loss(self, loss: Any) -> None:
        """Note a loss object that the program calls itself."""
        entry = described(loss)
        if entry not in self._losses and len(self._losses) < MOST_DATASETS:
            self._losses.append(entry)

    def add_dataset(self, dataset: Any) -> None:
        """Note the options of a dataset that is iterated."""
        if len(self._datasets) < MOST_DATASETS:
            options = dataset.options()
            self._datasets.append(
                {
                    "deterministic": plain(options.deterministic),
                    "autotune": plain(options.autotune.enabled),
                    "threads": plain(options.threading.private_threadpool_size),
                    "intra_op_threads": plain(options.threading.max_intra_op_parallelism),
                    "auto_shard": str(options.experimental_distribute.auto_shard_policy),
                }
            )

    def add_optimizer(self, optimizer: Any) -> None:
        """Note an optimizer's settings."""
        if id(optimizer) not in self._optimizers:
            with self._outside_graphs():  # a learning rate is a number, also while a graph is built
                config = _reading(optimizer.get_config)
            self._optimizers[id(optimizer)] = {"class": type(optimizer).__name__, "config": config}

    def before_first_step(self, strategy: Any = None) -> None:
        """Read what a step changes, random states, and what Keras stores for each thread. The first call
        counts; it comes from the thread that trains, `gather` from one of TensorFlow's.
        """
        if self._rng is None:
            with self._outside_graphs():  # states are read as numbers, also while a graph is built
                self._rng = rng.states()
            self._keras_settings = self._keras_facts()
            if self._tf is not None:
                strategy = strategy or self._tf.distribute.get_strategy()
                replicas = int(strategy.num_replicas_in_sync)
                self._strategy = {"class": type(strategy).__name__, "replicas": replicas}

    def _outside_graphs(self) -> Any:
        return contextlib.nullcontext() if self._tf is None else self._tf.init_scope()

    def gather(self) -> Dict[str, Any]:
        """Return everything as JSON values; a fact that cannot be read is null."""
        variables, modules = acting(os.environ), project_modules()
        return {
            **surroundings(),
            "argv": sys.argv[1:],
            "script": Path(sys.argv[0]).name if sys.argv else "",
            "program": script_facts(),
            "environment": variables,
            "set_late": sorted(set(variables) - self._early),
            "modules": {name: sha256(path) for name, path in modules.items()},
            "host": host(modules.values()),
            "files": reading(self._files.gather),
            "rng": self._rng,
            "versions": _versions(),
            "tensorflow": self._tensorflow(),
            "threads": {"intra": self._threads("intra"), "inter": self._threads("inter")},
            "strategy": self._strategy,
            "worker": worker(os.environ),
            "datasets": self._datasets,
            "keras": self._keras_settings or self._keras_facts(),
            "models": self._models,
            "compiled": self._compiled,
            "losses": self._losses,
            "optimizers": list(self._optimizers.values()),
        }

    def _threads(self, kind: str) -> Optional[int]:
        if self._tf is None:
            return None
        threading = self._tf.config.threading
        configured = reading(getattr(threading, f"get_{kind}_op_parallelism_threads")) or 0
        variable = os.environ.get(f"TF_NUM_{kind.upper()}OP_THREADS", "")
        return int(configured or (int(variable) if variable.isdigit() else 0) or cpu_count())

    def _tensorflow(self) -> Dict[str, Any]:
        tf = self._tf
        if tf is None:
            return {}
        readings: Dict[str, Callable[[], Any]] = {
            "intra_op_threads": tf.config.threading.get_intra_op_parallelism_threads,
            "inter_op_threads": tf.config.threading.get_inter_op_parallelism_threads,
            "deterministic_ops": _determinism,
            "onednn": _onednn,
            "tf32": tf.config.experimental.tensor_float_32_execution_enabled,
            "devices": lambda: [f"{d.device_type}:{d.name[-1]}" for d in tf.config.get_visible_devices()],
            "jit": tf.config.optimizer.get_jit,
            "soft_placement": tf.config.get_soft_device_placement,
            "functions_eager": tf.config.functions_run_eagerly,
            "build": lambda: plain(dict(tf.sysconfig.get_build_info())),
        }
        return {name: _reading(read) for name, read in readings.items()}

    def _keras_facts(self) -> Dict[str, Any]:
        keras = self._keras
        if keras is None:
            return {}
        return {
            "module": keras.__name__,
            "backend": _reading(lambda: keras.backend.backend()),
            "policy": _reading(lambda: _policy(keras)),
            "floatx": _reading(lambda: keras.backend.floatx()),
            "image_data_format": _reading(lambda: keras.backend.image_data_format()),
        }


def plain(value: Any) -> Any:
    """Return a JSON value that is the same in every process: objects become the name of their class."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted((plain(item) for item in value), key=str)
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "item") and getattr(value, "size", 0) == 1:
        return plain(value.item())
    return type(value).__name__


def described(thing: Any) -> Any:
    """Describe losses or metrics: strings unchanged, objects by class and configuration."""
    if isinstance(thing, Mapping):
        return {str(key): described(item) for key, item in thing.items()}
    if isinstance(thing, (list, tuple)):
        return [described(item) for item in thing]
    if callable(getattr(thing, "get_config", None)):
        return {"class": type(thing).__name__, "config": _reading(thing.get_config)}
    if callable(thing):
        return str(getattr(thing, "__qualname__", type(thing).__name__))
    return plain(thing)


def _compiled(model: Any) -> Dict[str, Any]:
    """Return the arguments of compile(), as Keras 3 and tf-keras 2 store them."""
    given = getattr(model, "_compile_config", None)
    config = getattr(given, "config", given) or {}
    if not isinstance(config, Mapping):
        config = {}
    loss = config.get("loss", getattr(model, "loss", None))
    names = ("loss_weights", "metrics", "weighted_metrics")
    return {"loss": described(loss), **{name: described(config.get(name)) for name in names}}


def _reading(read: Callable[[], Any]) -> Any:
    try:
        return plain(read())
    except Exception:  # a fact that this version does not offer
        return None


def _determinism() -> bool:
    from tensorflow.python.framework import config

    return bool(config.is_op_determinism_enabled())


def _onednn() -> bool:
    from tensorflow.python.util import _pywrap_util_port

    return bool(_pywrap_util_port.IsMklEnabled())


def _policy(keras: Any) -> str:
    if hasattr(keras, "config") and hasattr(keras.config, "dtype_policy"):
        return str(keras.config.dtype_policy().name)
    return str(keras.mixed_precision.global_policy().name)


def _versions() -> Dict[str, str]:
    names = (
        "tensorflow",
        "keras",
        "tf_keras",
        "numpy",
        "scipy",
        "sklearn",
        "pandas",
        "PIL",
        "cv2",
        "jax",
        "torch",
    )
    loaded = ((name, sys.modules.get(name)) for name in names)
    return {name: str(getattr(module, "__version__", "")) for name, module in loaded if module}
