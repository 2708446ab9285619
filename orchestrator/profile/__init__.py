"""The profile: one YAML file that says what to run and where, checked before anything happens.

`load` reads it, `json_schema` describes it to editors, `starter` writes a first one.
"""

from orchestrator.profile.load import load
from orchestrator.profile.resolved import (
    Code,
    DataTree,
    Mlflow,
    Notify,
    Parity,
    Profile,
    Resources,
    Retry,
    Stack,
    Train,
)
from orchestrator.profile.schema import json_schema
from orchestrator.profile.starter import OUTPUT_NAMES, FoundData, starter
from orchestrator.profile.values import Accelerator, FromEnv

__all__ = [
    "OUTPUT_NAMES",
    "Accelerator",
    "Code",
    "DataTree",
    "FoundData",
    "FromEnv",
    "Mlflow",
    "Notify",
    "Parity",
    "Profile",
    "Resources",
    "Retry",
    "Stack",
    "Train",
    "json_schema",
    "load",
    "starter",
]
