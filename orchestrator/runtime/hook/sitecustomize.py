"""Runs when a job's Python starts: asks to be told of TensorFlow and Keras, then makes way.

The folder of this file is first on PYTHONPATH, so that every Python that the job starts finds it. It
does nothing unless the run asks for observation or for a trace, takes itself off sys.path, and then
runs the sitecustomize that it hides.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_FRAMEWORKS = ("tensorflow", "keras", "tf_keras")


def _runtime():
    """The package around this folder, importable as orch_runtime without a place on sys.path."""
    import importlib.util

    if "orch_runtime" not in sys.modules:
        root = os.path.dirname(_HERE)
        spec = importlib.util.spec_from_file_location(
            "orch_runtime", os.path.join(root, "__init__.py"), submodule_search_locations=[root]
        )
        package = importlib.util.module_from_spec(spec)
        sys.modules["orch_runtime"] = package
        spec.loader.exec_module(package)
    return sys.modules["orch_runtime"]


def _listeners():
    """What wants to hear of the frameworks: the observation and the step clock, each if asked for."""
    found = []
    if os.environ.get("ORCH_OBSERVE_STEPS"):
        from orch_runtime import observe

        found.append(observe.observation(os.environ))
    if os.environ.get("ORCH_TRACE"):
        try:
            from orch_runtime import stepclock
        except ImportError:
            stepclock = None
        found.append(stepclock)
    return [listener for listener in found if listener is not None]


def _install():
    _runtime()
    from orch_runtime.observe.imports import Announcer

    listeners = _listeners()

    def tell(module):
        method = "on_tensorflow" if module.__name__ == "tensorflow" else "on_keras"
        for listener in listeners:
            try:
                getattr(listener, method)(module)
            except Exception:
                pass  # a hook that fails is a missing fact, never a failed job

    if listeners:
        Announcer(_FRAMEWORKS, tell).install()


def _chain():
    """Run the sitecustomize that this one hides, as itself."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


if os.environ.get("ORCH_OBSERVE_STEPS") or os.environ.get("ORCH_TRACE"):
    try:
        _install()
    except Exception:
        pass
_chain()
