"""The list of environment variables that can change what a training computes."""

from __future__ import annotations

import re
from typing import Dict, Mapping

PREFIXES = (
    "TF_", "TFDS_", "XLA_", "OMP_", "KMP_", "MKL_", "ONEDNN_", "DNNL_", "OPENBLAS_", "BLIS_", "CUDA_",
    "CUBLAS_", "CUDNN_", "NCCL_", "NVIDIA_", "HIP_", "ROCM_", "MIOPEN_", "TPU_", "LIBTPU_", "PJRT_", "KERAS_",
    "JAX_", "TORCH_", "PYTORCH_", "NUMEXPR_", "VECLIB_", "GOMP_", "NPY_", "LC_",
)  # fmt: skip
NAMES = frozenset(
    {"PYTHONHASHSEED", "PYTHONOPTIMIZE", "PYTHONUTF8", "TZ", "LANG", "LANGUAGE", "GLIBC_TUNABLES"}
)
_TERRAFORM = (
    "TF_CLI_", "TF_VAR_", "TF_LOG", "TF_DATA_DIR", "TF_WORKSPACE", "TF_INPUT", "TF_IN_AUTOMATION",
    "TF_REGISTRY_", "TF_PLUGIN_", "TF_REATTACH_", "TF_TOKEN_", "TF_IGNORE",
)  # fmt: skip
_INNOCENT = (
    "TF_CPP_",  # how much TensorFlow says
    "NCCL_DEBUG",
    "KMP_DUPLICATE_LIB_OK",  # these two TensorFlow sets itself as it is imported
    "KMP_INIT_AT_FORK",
)
_OF_ONE_MACHINE = (
    "CUDA_", "NVIDIA_VISIBLE_", "NVIDIA_DRIVER_", "NVIDIA_REQUIRE_", "NCCL_", "HIP_", "ROCM_", "MIOPEN_",
    "TPU_", "LIBTPU_", "PJRT_", "JAX_PLATFORM", "LC_", "LANG", "TZ", "PYTHONUTF8",
    "TF_CONFIG", "JAX_COORDINATOR_", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID",
)  # fmt: skip
"""Devices, peers, links, language and time zone: right for one machine, wrong for the next."""
_PATH = re.compile(r"(^|[=:;,\s])(~|/|[A-Za-z]:\\)")
_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|API_?KEY", re.IGNORECASE)


def acts(name: str) -> bool:
    """Whether a variable changes results. Terraform's variables share TensorFlow's prefix, but do not; nor do
    those that control printing.
    """
    if name in NAMES:
        return True
    return name.startswith(PREFIXES) and not name.startswith((*_TERRAFORM, *_INNOCENT))


def looks_secret(name: str) -> bool:
    """Whether a variable is named like one whose value is a secret."""
    return bool(_SECRET.search(name))


def inheritable(environ: Mapping[str, str]) -> Dict[str, str]:
    """Return the variables that change results and mean the same anywhere: no device, path or secret."""
    return {
        name: value
        for name, value in sorted(environ.items())
        if acts(name)
        and not name.startswith(_OF_ONE_MACHINE)
        and not _SECRET.search(name)
        and not _PATH.search(value)
    }


def acting(environ: Mapping[str, str]) -> Dict[str, str]:
    """Return the variables that can change results or text; one that looks like a secret as "(set)"."""
    chosen = {name: value for name, value in environ.items() if acts(name)}
    return {name: "(set)" if _SECRET.search(name) else value for name, value in sorted(chosen.items())}
