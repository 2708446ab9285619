"""Check the classes that a Keras configuration names before Keras instantiates any of them."""

from __future__ import annotations

import importlib
import json
import zipfile
from pathlib import Path
from typing import Any, Dict, Iterator, Tuple

from .explain import LAMBDA, Cause, Refusal, way_to_import

MAX_CONFIG = 64 << 20
"""Maximum bytes of a configuration."""
_PUBLIC = (
    "layers", "models", "initializers", "regularizers", "constraints", "losses", "metrics", "optimizers",
    "optimizers.schedules", "dtype_policies", "mixed_precision", "random", "quantizers",
)  # fmt: skip
"""Modules of Keras whose public classes a configuration may name."""
_INTERNAL = ("layers", "models", "ops", "engine", "initializers", "regularizers", "dtype_policies")
"""Packages of keras.src whose classes a configuration may name."""
_FUNCTIONS = ("builtins", "keras.activations", "keras.losses", "keras.metrics", "keras.ops",
              "keras.initializers")  # fmt: skip
_TOP = ("Sequential", "Model", "Functional", "DTypePolicy", "FloatDTypePolicy", "QuantizedDTypePolicy",
        "Variable", "InputSpec", "DTypePolicyMap")  # fmt: skip
_PLAIN = ("__keras_tensor__", "__tensor__", "__numpy__", "__bytes__", "__ellipsis__", "__slice__",
          "__tuple__", "TensorShape")  # fmt: skip
_CODE = ("Lambda", "__lambda__", "__typespec__", "TFSMLayer", "TorchModuleWrapper", "JaxLayer", "FlaxLayer")
"""Classes that hold Python code, or a program of another framework."""
_OF_TENSORFLOW = ("TFOpLambda", "SlicingOpLambda", "ClassMethod", "InstanceMethod", "InstanceProperty")
"""Layers of Keras 2 that call a TensorFlow function by name."""
_ARITHMETIC = ("math.", "nn.", "linalg.", "__operators__.", "image.", "signal.")
_SHAPES = ("cast", "concat", "reshape", "expand_dims", "squeeze", "stack", "tile", "transpose", "shape",
           "where", "one_hot", "identity")  # fmt: skip
_OF_FILES = ("vocabulary", "idf_weights")
"""Arguments of lookup layers that name a file if they are text."""


def is_archive(path: Path) -> bool:
    """Whether Keras would read it as a .keras archive. The name decides first: a file can be HDF5 and zip at
    once."""
    return path.suffix == ".keras" and zipfile.is_zipfile(path)


def configuration(path: Path) -> Any:
    """Return the configuration in a .keras archive, an HDF5 or a .json file. Raises Refusal, ValueError."""
    if path.suffix == ".json":
        return _parsed(path.read_bytes())
    if is_archive(path):
        with zipfile.ZipFile(path) as archive, archive.open("config.json") as file:
            return _parsed(file.read(MAX_CONFIG + 1))
    h5py = importlib.import_module("h5py")
    with h5py.File(path, "r") as file:
        text = file.attrs["model_config"]
    return _parsed(text if isinstance(text, bytes) else str(text).encode())


def _parsed(text: bytes) -> Any:
    if len(text) > MAX_CONFIG:
        raise Refusal("its configuration has more than 64 MiB", "Save a smaller model.", Cause.TOO_LARGE)
    try:
        return json.loads(text)
    except RecursionError:
        raise Refusal(
            "its configuration is nested without end", "Save the model again.", Cause.TOO_LARGE
        ) from None


def check_config(keras: Any, config: Any, trusted: Tuple[str, ...]) -> None:
    """Raise Refusal if the configuration names code: a Lambda, or a class that is not part of Keras.

    Classes registered by the `trusted` modules, which are already imported, are accepted. A name without a
    module that this Keras does not know raises ValueError, as Keras would: another version may know it.
    """
    if isinstance(config, dict):
        config = {key: value for key, value in config.items() if key != "compile_config"}
    own = _registered(keras, trusted)
    for each in _dictionaries(config):
        for name in _OF_FILES:
            if isinstance(each.get(name), str):
                raise Refusal(
                    f"a layer that reads its {name} from the file {each[name][:200]}",
                    "Give the layer the words themselves.",
                    Cause.WOULD_USE_FILES,
                )
        if "class_name" in each:
            _check_class(keras, each, own)


def _dictionaries(config: Any) -> Iterator[Dict[str, Any]]:
    todo = [config]
    while todo:
        value = todo.pop()
        if isinstance(value, dict):
            yield value
            todo.extend(value.values())
        elif isinstance(value, list):
            todo.extend(value)


def _registered(keras: Any, trusted: Tuple[str, ...]) -> Dict[str, Any]:
    """Return the classes and functions that the trusted modules registered with Keras, by name."""
    place = keras.saving if hasattr(keras, "saving") else keras.utils
    return {
        name: value
        for name, value in place.get_custom_objects().items()
        if any(_lies_in(str(value.__module__), module) for module in trusted)
    }


def _lies_in(name: str, module: str) -> bool:
    return name == module or name.startswith(f"{module}.")


def _check_class(keras: Any, value: Dict[str, Any], own: Dict[str, Any]) -> None:
    name, registered = value["class_name"], value.get("registered_name")
    if not isinstance(name, str):
        raise ValueError("a class without a name")
    if name in _PLAIN or name in own or registered in own:
        return
    if name in _CODE:
        what = "a Lambda layer" if "ambda" in name else f"a layer of the class {name}"
        raise Refusal(what, LAMBDA, Cause.WOULD_RUN_CODE)
    if name in _OF_TENSORFLOW:
        _check_function_of_tensorflow(value)
    elif name == "function":
        _check_function(value, own)
    elif "module" not in value:
        if not _is_public(keras, name):
            raise ValueError(f"Unknown layer: '{name}'. Please ensure you are using a built-in one.")
    elif not _is_built_in(keras, value["module"], name):
        where = f"{value['module']}." if value["module"] else ""
        raise Refusal(f"{where}{name}", way_to_import(value["module"], registered), Cause.WOULD_RUN_CODE)


def _is_built_in(keras: Any, module: Any, name: str) -> bool:
    if not isinstance(module, str) or not name.isidentifier():
        return False
    package, _, inner = module.partition(".")
    if package not in ("keras", "tf_keras"):
        return False
    if not inner:
        return name in _TOP
    if inner in _PUBLIC:
        return _is_class(keras, inner, name)
    parts = inner.split(".")
    return parts[0] == "engine" or (parts[0] == "src" and len(parts) > 2 and parts[1] in _INTERNAL)


def _is_public(keras: Any, name: str) -> bool:
    return name in _TOP or any(_is_class(keras, module, name) for module in _PUBLIC)


def _is_class(keras: Any, module: str, name: str) -> bool:
    value = keras
    for part in module.split("."):
        value = getattr(value, part, None)
    return isinstance(getattr(value, name, None), type)


def _check_function(value: Dict[str, Any], own: Dict[str, Any]) -> None:
    name, module = value.get("config"), value.get("module")
    if name in own:
        return
    if module not in _FUNCTIONS or not isinstance(name, str) or not name.isidentifier():
        way_out = way_to_import(module, value.get("registered_name"))
        raise Refusal(f"{module}.{name}" if module else str(name), way_out, Cause.WOULD_RUN_CODE)


def _check_function_of_tensorflow(value: Dict[str, Any]) -> None:
    config = value.get("config")
    name = config.get("function") if isinstance(config, dict) else None
    plain = isinstance(name, str) and (name.startswith(_ARITHMETIC) or name in _SHAPES)
    if value["class_name"] not in ("TFOpLambda", "SlicingOpLambda") or not plain:
        raise Refusal(f"a call of tensorflow.{name}", LAMBDA, Cause.WOULD_RUN_CODE)
