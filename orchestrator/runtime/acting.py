"""Which environment variables can change what a training computes: one list for all that compare."""

from __future__ import annotations

PREFIXES = (
    "TF_", "TFDS_", "XLA_", "OMP_", "KMP_", "MKL_", "ONEDNN_", "DNNL_", "OPENBLAS_", "BLIS_", "CUDA_",
    "CUBLAS_", "CUDNN_", "NCCL_", "NVIDIA_", "KERAS_", "JAX_", "NUMEXPR_", "NPY_", "LC_",
)  # fmt: skip
NAMES = frozenset(
    {"PYTHONHASHSEED", "PYTHONOPTIMIZE", "PYTHONUTF8", "TZ", "LANG", "LANGUAGE", "GLIBC_TUNABLES"}
)
_TERRAFORM = (
    "TF_CLI_", "TF_VAR_", "TF_LOG", "TF_DATA_DIR", "TF_WORKSPACE", "TF_INPUT", "TF_IN_AUTOMATION",
    "TF_REGISTRY_", "TF_PLUGIN_", "TF_REATTACH_", "TF_TOKEN_", "TF_IGNORE",
)  # fmt: skip


def acts(name: str) -> bool:
    """Terraform's variables share TensorFlow's prefix, and change no number."""
    return name in NAMES or (name.startswith(PREFIXES) and not name.startswith(_TERRAFORM))
