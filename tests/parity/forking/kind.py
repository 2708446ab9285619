"""Which waiting process serves a script: by the variables that act when Python and TensorFlow start."""

# A program for `python -S`, where every import costs.
# ruff: noqa: PTH110, PTH118

import hashlib
import os

HOST = "PARITY_HOST"
"""Holds the name that the computer is to have for a script."""

AT_START = (
    "HOME",
    "TF_ENABLE_ONEDNN_OPTS",
    "TF_USE_LEGACY_KERAS",
    "KERAS_BACKEND",
    "PYTHONHASHSEED",
    "PYTHONUTF8",
    "PYTHONOPTIMIZE",
)
"""Changing these after the imports would do nothing, or something else."""


def start_variables(environ):
    """Those of the variables that are set, and the part of PYTHONPATH that is not the hook's."""
    found = {name: environ[name] for name in AT_START if name in environ}
    own = [part for part in environ.get("PYTHONPATH", "").split(os.pathsep) if part and not is_hook(part)]
    if own:
        found["PYTHONPATH"] = os.pathsep.join(own)
    return found


def is_hook(folder):
    """Whether a folder of PYTHONPATH is the one that observes."""
    return folder.rstrip("/").endswith("/hook") and os.path.exists(os.path.join(folder, "sitecustomize.py"))


def socket_name(environ):
    text = "\0".join(f"{name}={value}" for name, value in sorted(start_variables(environ).items()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
