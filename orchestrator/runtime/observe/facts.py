"""What acts on a run beside its data: versions, threads, policy, devices, environment, code, arguments."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List

ACTING = re.compile(
    r"(TF_(ENABLE|DETERMINISTIC|CUDNN|XLA|DISABLE|USE|FORCE|NUM|GPU|FP16|OVERRIDE|AUTO|MKL|ONEDNN)_?"
    r"|XLA_|OMP_|MKL_|ONEDNN_|DNNL_|OPENBLAS_|BLIS_|CUDA_|NVIDIA_TF32|CUBLAS_|CUDNN_|NCCL_|JAX_|NUMEXPR_|NPY_|LC_"
    r"|KMP_(?!DUPLICATE_LIB_OK|INIT_AT_FORK)"  # these two TensorFlow sets itself
    r"|KERAS_BACKEND$|LANG$|TZ$|PYTHONHASHSEED$|PYTHONOPTIMIZE$|GLIBC_TUNABLES$)"
)
"""Names of environment variables that can change numbers. Narrow: nothing here is ever a secret."""

CPU_FLAGS = tuple(
    name
    for line in (
        "sse4_1 sse4_2 avx avx2 fma avx_vnni avx512f avx512bw avx512vl avx512_vnni avx512_bf16 avx512_fp16",
        "amx_tile amx_bf16 amx_int8 asimd asimddp sve sve2 bf16 i8mm",
    )
    for name in line.split()
)
"""Instruction sets by which math libraries choose their kernels."""


class Facts:
    """Gathers facts during a run; `gather()` reads the rest when the first step is complete."""

    def __init__(self, tf: Any) -> None:
        self._tf = tf
        self._keras: Any = None
        self._models: List[Dict[str, Any]] = []
        self._optimizers: Dict[int, Dict[str, Any]] = {}

    def set_keras(self, keras: Any) -> None:
        """The Keras that the script uses."""
        self._keras = keras

    def add_model(self, model: Any) -> None:
        """How a compiled model runs its steps."""
        names = ("jit_compile", "run_eagerly", "steps_per_execution")
        facts = {name: plain(getattr(model, name, None)) for name in names}
        entry = {"name": str(model.name), **facts}
        if entry not in self._models:
            self._models.append(entry)

    def add_optimizer(self, optimizer: Any) -> None:
        """An optimizer's settings."""
        if id(optimizer) not in self._optimizers:
            with self._tf.init_scope():  # a learning rate is read as a number, also while a graph is built
                config = _reading(optimizer.get_config)
            self._optimizers[id(optimizer)] = {"class": type(optimizer).__name__, "config": config}

    def gather(self) -> Dict[str, Any]:
        """Everything, as JSON values; a fact that cannot be read is null."""
        return {
            "python": platform.python_version(),
            "platform": {
                "system": platform.system(),
                "machine": platform.machine(),
                "libc": platform.libc_ver()[1],
            },
            "cpu": {"count": _cpu_count(), "flags": _cpu_flags(), "model": _cpu_field("model name")},
            "argv": sys.argv[1:],
            "script": Path(sys.argv[0]).name if sys.argv else "",
            "environment": acting_environment(os.environ),
            "modules": project_modules(),
            "versions": _versions(),
            "tensorflow": self._tensorflow(),
            "keras": self._keras_facts(),
            "models": self._models,
            "optimizers": list(self._optimizers.values()),
        }

    def _tensorflow(self) -> Dict[str, Any]:
        tf = self._tf
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


def acting_environment(environ: Any) -> Dict[str, str]:
    """The variables that can change numbers."""
    return {name: value for name, value in sorted(environ.items()) if ACTING.match(name)}


def project_modules() -> Dict[str, str]:
    """path → sha256 of every imported module that lies in the script's folder or the working folder.

    Paths are relative to that folder, so that two machines name them alike; packages of the environment
    are left out (the lock vouches for them).
    """
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    roots = [Path(main).resolve().parent] if main else []
    roots.append(Path.cwd())
    found: Dict[str, str] = {}
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file and str(file).endswith(".py"):
            path = Path(file).resolve()
            relative = next((path.relative_to(root) for root in roots if root in path.parents), None)
            if relative and not _foreign(path, relative):
                found[relative.as_posix()] = _sha256(path)
    return dict(sorted(found.items()))


def _foreign(path: Path, relative: Path) -> bool:
    """Whether a module belongs to the environment or to us rather than to the project."""
    ours = Path(__file__).resolve().parent.parent
    installed = {"site-packages", "dist-packages"} & set(path.parts)
    inside_environment = Path(sys.prefix).resolve() in path.parents and sys.prefix != sys.base_prefix
    return bool(installed) or inside_environment or ours in path.parents or relative.parts[0] == ".venv"


def plain(value: Any) -> Any:
    """A JSON value that is the same in every process: objects become the name of their class."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if hasattr(value, "item") and getattr(value, "size", 0) == 1:
        return plain(value.item())
    return type(value).__name__


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


def _cpu_count() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cpu_flags() -> List[str]:
    have = set((_cpu_field("flags") or _cpu_field("Features")).split())
    return [flag for flag in CPU_FLAGS if flag in have]


def _cpu_field(name: str) -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            return next((line.split(":", 1)[1].strip() for line in lines if line.split("\t")[0] == name), "")
    except OSError:
        return ""


def _sha256(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""
